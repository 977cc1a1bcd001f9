import Foundation
import StallGate
import StallReading
import StallReports

/// The gate's outputs for other programs.
enum GateOutput: CaseIterable {
    case json, sarif, junit, html, markdown, gitHub
}

extension Trial {
    /// Through outputs that other programs read.
    mutating func judge(
        _ reports: [StallReport],
        _ runs: [RunRecord],
        by budget: Budget,
        against baseline: Baseline?,
        _ outputs: [GateOutput]
    ) {
        var overview = ReportReader.Overview()
        (overview.stalls, overview.runs) = (reports.map(StallOutline.init), runs)
        let result = Gate.judge(.success(overview), by: budget, against: baseline)
        check("gate", result.text)
        for output in outputs {
            do { try write(result, as: output) } catch { problems.append("gate: \(error)") }
        }
    }

    private mutating func write(_ result: GateResult, as output: GateOutput) throws {
        let root = dice.pick(["/", "", "/home/me/shop", "."])
        switch output {
        case .json: check("gate json", JSONText.escaped(String(decoding: try result.json(), as: UTF8.self)))
        case .sarif: try checkJSON("gate sarif", result.sarif(sourceRoot: root, version: "1"))
        case .junit: checkXML("gate junit", result.junit())
        case .html: checkXML("gate html", result.html(sourceRoot: root), isWhole: false)
        case .markdown: check("gate markdown", result.markdown(sourceRoot: root))
        case .gitHub: check("gate github", result.gitHubAnnotations(sourceRoot: root))
        }
    }

    /// A budget file and a baseline file, and a judgement by whatever could be read of them.
    mutating func readGateFiles(_ reports: [StallReport], _ runs: [RunRecord]) {
        let path = "\(NSTemporaryDirectory())/reader-fuzz-\(getpid()).yaml"
        defer { unsafe _ = unlink(path) }
        var budget = Budget()
        do {
            try Data(broken(BudgetText.any(&dice), "budget")).write(to: URL(filePath: path))
            let file = try BudgetFile(path: path)
            (budget.rules, budget.allowances) = (file.rules, file.allowances)
            budget.today = dice.pick([nil, file.allowances.first?.expires])
            calls["budget", default: 0] += 1
        } catch let error as CommandFailure {
            check("budget refused", error.description)
        } catch {
            problems.append("budget: \(error)")
        }
        let output = dice.pick(GateOutput.allCases)
        judge(reports, runs, by: budget, against: baseline(reports, runs), [output])
    }

    private mutating func baseline(_ reports: [StallReport], _ runs: [RunRecord]) -> Baseline? {
        var overview = ReportReader.Overview()
        (overview.stalls, overview.runs) = (reports.map(StallOutline.init), runs)
        guard let bytes = try? Baseline(overview, at: .now())?.json() else { return nil }
        guard let baseline = try? Baseline(json: broken(bytes, "baseline")) else {
            calls["baseline refused", default: 0] += 1
            return nil
        }
        calls["baseline", default: 0] += 1
        return baseline
    }

    private mutating func checkJSON(_ reader: String, _ bytes: [UInt8]) throws {
        calls[reader, default: 0] += 1
        if (try? JSONSerialization.jsonObject(with: Data(bytes))) == nil { problems.append("\(reader): not JSON") }
    }

    private mutating func checkXML(_ reader: String, _ text: String, isWhole: Bool = true) {
        calls[reader, default: 0] += 1
        if isWhole, let fault = Self.xmlFault(text) { problems.append("\(reader): \(fault)") }
    }
}

/// Budgets as a user could write them.
enum BudgetText {
    private static let values = [
        "1", "0", "-1", "100ms", "1s", "0.1", "1e9", "9223372036854775807", "99999999999999999999h", "nan", "inf", "[]",
        "{}", "~", "''",
        "\"v2:3fa0c1\"", "v2:8a0d3d4a", "2027-01-31", "2027-02-30", "0000-00-00", "99999-01-01", "run_loop", "waiting",
        "off", "error",
        "warning", "\"*\"", "\"a*b*c*\"", "|\n      text", "&a x", "*a",
    ]
    private static let limits = [
        "maxPerHour", "maxDuration", "maxBlockedPercent", "maxTurnP99", "maxTurn",
    ]

    static func any(_ dice: inout Dice) -> [UInt8] {
        var text = dice.happens(7, in: 8) ? "version: 1\n" : ""
        let rules = dice.below(4)
        if rules > 0 { text += "budgets:\n" }
        for index in 0..<rules {
            text += "  - name: b\(index)\n    match:\n      service: \(value("service", &dice))\n"
            // Turns are judged only for loops.
            let isOfLoops = dice.happens(1, in: 2)
            for key in isOfLoops ? ["label", "type"] : ["label", "type", "verdict", "fingerprint"]
            where dice.happens(1, in: 3) {
                text += "      \(key): \(value(key, &dice))\n"
            }
            text += "    maxStalls: \(value("maxStalls", &dice))\n"
            for key in isOfLoops ? limits : Array(limits.prefix(3)) where dice.happens(1, in: 3) {
                text += "    \(key): \(value(key, &dice))\n"
            }
            if dice.happens(1, in: 3) { text += "    severity: \(dice.pick(["off", "warning", "error"]))\n" }
        }
        let allowances = dice.below(3)
        if allowances > 0 { text += "allowances:\n" }
        for _ in 0..<allowances {
            text +=
                "  - fingerprint: \(value("fingerprint", &dice))\n    reason: r\n    owner: o\n    expires: \(value("expires", &dice))\n"
        }
        return Array(text.utf8)
    }

    /// In most cases one that matches.
    private static func value(_ key: String, _ dice: inout Dice) -> String {
        if dice.happens(1, in: 30) { return dice.pick(values) }
        return switch key {
        case "service", "label": dice.pick(["shop", "\"*\"", "main", "\"m*n\""])
        case "type": dice.pick(["run_loop", "event_loop", "task_pool", "queue"])
        case "verdict": dice.pick(["waiting", "on_cpu", "starved", "deadlock"])
        case "fingerprint": dice.pick(["\"v2:0000\"", "\"0000000000000000\"", "\"v1:00\""])
        case "expires": dice.pick(["2027-01-31", "1970-01-01", "2026-12-31"])
        case "maxStalls": dice.pick(["0", "1", "9223372036854775807"])
        case "maxPerHour": dice.pick(["0", "0.1", "2", "1e300"])
        case "maxBlockedPercent": dice.pick(["0", "0.1", "2", "100"])
        default: dice.pick(["100ms", "1s", "2.5s", "24h"])
        }
    }
}
