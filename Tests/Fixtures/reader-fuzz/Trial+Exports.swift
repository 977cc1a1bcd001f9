import Foundation
import StallExport
import StallGate
import StallReports

extension Trial {
    /// In one of the formats that other tools read.
    mutating func export(_ reports: [StallReport], _ runs: [RunRecord], _ format: ExportFormat) {
        let name = "export \(format.rawValue)"
        do {
            var exporter = format.makeExporter()
            var bytes = try exporter.begin(runs)
            for report in reports { bytes += try exporter.add(report) }
            bytes += try exporter.end()
            calls[name, default: 0] += 1
            if let fault = Self.fault(in: bytes, format) { problems.append("\(name): \(fault)") }
        } catch {
            problems.append("\(name): \(error)")
        }
    }

    /// What its reader would reject.
    private static func fault(in bytes: [UInt8], _ format: ExportFormat) -> String? {
        if format == .pprof { return nil }
        guard let text = String(validating: bytes, as: UTF8.self) else { return "not UTF-8" }
        switch format {
        case .speedscope, .chrome: return isJSON(bytes[...]) ? nil : "not JSON"
        case .otlpLogs, .otlpMetrics, .sentry, .ndjson:
            let lines = bytes.split(separator: UInt8(ascii: "\n"))
            return lines.allSatisfy { isJSON($0) } ? nil : "a line is not JSON"
        case .svg: return xmlFault(text)
        case .csv: return tableFault(text)
        case .collapsed, .prometheus:
            let hasControl = text.utf8.contains { $0 < 0x20 && $0 != 0x0a }
            return hasControl ? "a control character" : nil
        default: return nil
        }
    }

    private static func isJSON(_ bytes: ArraySlice<UInt8>) -> Bool {
        (try? JSONSerialization.jsonObject(with: Data(bytes))) != nil
    }

    /// Each row has as many fields as the first.
    private static func tableFault(_ text: String) -> String? {
        var (isQuoted, fields) = (false, 1)
        var counts: Set<Int> = []
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""): isQuoted.toggle()
            case UInt8(ascii: ",") where !isQuoted: fields += 1
            case UInt8(ascii: "\n") where !isQuoted:
                counts.insert(fields)
                fields = 1
            default: break
            }
        }
        return isQuoted || counts.count > 1 ? "rows of \(counts.sorted()) fields" : nil
    }

    /// Tags that close in order, and no unescaped `&` or control character: enough to notice missing escapes.
    static func xmlFault(_ text: String) -> String? {
        var open: [Substring] = []
        var rest = text[...]
        if let scalar = text.unicodeScalars.first(where: { $0.value < 0x20 && !"\n\r\t".unicodeScalars.contains($0) }) {
            return "U+\(String(scalar.value, radix: 16)) in XML"
        }
        while let start = rest.utf8.firstIndex(of: UInt8(ascii: "<")) {
            rest = rest[start...]
            let isData = rest.utf8.starts(with: "<![CDATA[".utf8)
            guard let end = isData ? rest.range(of: "]]>")?.upperBound : rest.utf8.firstIndex(of: UInt8(ascii: ">"))
            else { return "a tag that does not end" }
            let tag = rest[..<end].dropFirst()
            rest = rest[end...]
            if isData || tag.hasPrefix("?") || tag.hasPrefix("!") || tag.hasSuffix("/") { continue }
            let name = tag.drop { $0 == "/" }.prefix { !$0.isWhitespace }
            if !tag.hasPrefix("/") {
                open.append(name)
            } else if open.popLast() != name {
                return "</\(name.prefix(40))>"
            }
        }
        return open.isEmpty ? nil : "<\(open[0].prefix(40))> stays open"
    }
}
