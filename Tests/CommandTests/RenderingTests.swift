import Foundation
import StallExport
import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("Rendering")
struct RenderingTests {
    init() { ShownTime.useUTC() }

    @Test("show: the server's labels for the stalled work, from outside in, short and in full")
    func labels() {
        var report = Sample.report()
        report.labels = ["checkout", "charge"]
        #expect(
            StallFacts(report: report).rows.contains { $0.name == "labels" && $0.value.plain == "checkout > charge" }
        )
        let brief = StallBrief(report: report).lines.map(\.plain)
        #expect(brief.contains { $0.hasPrefix("Work") && $0.hasSuffix("checkout > charge") }, "\(brief)")
    }

    @Test("show: one empty line between the parts of a page, also of a pool, with several stacks and without one")
    func emptyLines() {
        var pool = Sample.report()
        pool.pool = StallReport.Pool(
            width: 1,
            running: 1,
            workers: [.init(thread: .init(id: 81), standingNs: 1, verdict: .onCPU, stack: 0)]
        )
        var several = Sample.report()
        several.stacks += several.stacks.filter { $0.role == .stalled }
        var bare = Sample.report()
        bare.stacks = []
        for report in [pool, several, bare, Sample.report()] {
            for isFlame in [false, true] {
                let brief = StallBrief(report: report, style: PageStyle(showsFlame: isFlame)).lines.map(\.plain)
                #expect(!zip(brief, brief.dropFirst()).contains { $0.isEmpty && $1.isEmpty }, "\(brief)")
                #expect(brief.firstIndex { $0.hasPrefix("When") }.map { brief[$0 - 1].isEmpty } == true, "\(brief)")
            }
        }
    }

    @Test("show: the short page points to --full, unless it is a part of it")
    func pointer() {
        func report(_ style: PageStyle) -> String? {
            StallBrief(report: Sample.report(), style: style).lines.map(\.plain).last
        }
        #expect(report(PageStyle())?.hasSuffix("  --full shows all of it") == true)
        #expect(report(PageStyle(showsAllFrames: true)) == "Report  \(Sample.report().id)")
        let other = report(PageStyle(fullHint: "'show ID --full'"))
        #expect(other?.hasSuffix("  'show ID --full' shows all of it") == true)
    }

    @Test("show --full: the short page has no stack that the details show; it has a tree of several, and a flame graph")
    func stacksOfWholePage() {
        var several = Sample.report()
        several.stacks += several.stacks.filter { $0.role == .stalled }
        func brief(_ report: StallReport, isFlame: Bool = false) -> String {
            let style = PageStyle(showsAllFrames: true, showsFlame: isFlame)
            return StallBrief(report: report, style: style).lines.map(\.plain).joined(separator: "\n")
        }
        #expect(!brief(Sample.report()).contains("libc.so.6") && brief(Sample.report()).contains("\n\nWhen "))
        #expect(brief(several).contains("outermost call first"))
        #expect(brief(Sample.report(), isFlame: true).contains("clock_nanosleep"))
    }

    @Test("show: the figures of a short page name the same window as the whole page")
    func figures() {
        let brief = StallBrief(report: Sample.report()).lines.map(\.plain).joined(separator: "\n")
        let figures =
            "CPU 0s, waiting for a CPU 81µs, otherwise waiting 250ms, in a window of 250ms; 4 major faults"
        #expect(brief.contains(figures), "\(brief)")
        var report = Sample.report()
        report.cause.evidence?.majorFaults = 1
        report.suppressed = 1
        let one = StallBrief(report: report).lines.map(\.plain).joined(separator: "\n")
        #expect(one.contains("; 1 major fault") && !one.contains("1 major faults"), "\(one)")
        #expect(one.contains(", 1 more stall was only counted"), "\(one)")
        #expect(Sample.repeats(of: report.id, count: 1).whole == "×1 at 2026-11-18T11:06:41Z, 590ms")
        #expect(StallPage(report: report).lines.contains { $0.plain.hasSuffix(", 1 major fault") })
    }

    @Test("show: the page of a stall")
    func page() {
        let page = StallPage(report: Sample.report()).lines.map(\.plain).joined(separator: "\n")
        #expect(
            page == """
                Stall 00000001000000000000000000  error  recovered  blocked
                Asleep in clock_nanosleep.

                  culprit     shop.Cart.total() -> Swift.Int (shop)
                  verdict     waiting in system call clock_nanosleep(0x1, 0x0)
                  evidence    0s on CPU, 81µs waiting for a CPU, in a window of 250ms, 4 major faults
                  lasted      612.345678ms
                  started     2026-11-18T11:06:40.123456789Z
                  detected    after 250ms (threshold: 5 × 50ms; rule: blocked)
                  watched     main (run_loop, mode default, about to run sources, turn 1234)
                  thread      4711 main, state S
                  service     shop 1.2
                  process     4711 /srv/shop
                  host        web1 (kernel 6.1, 2 CPUs)
                  fingerprint v2:aa2967735f45fe5c, 3 more stalls were only counted
                  metadata    region=eu

                Stack of the stalled thread 4711 main, read without stopping it
                      0  clock_nanosleep + 0x10  libc.so.6
                      1  usleep + 0x10  libc.so.6
                  ▶   2  shop.Cart.total() -> Swift.Int + 0x10  shop
                      3  swift_job_run + 0x10  libc.so.6
                      4  drain + 0x10  libc.so.6
                  ▶   5  main + 0x10  shop
                      6  __libc_start_main + 0x10  libc.so.6

                Modules
                  /srv/shop  build id aa11
                  /usr/lib/libc.so.6  build id unknown

                Cost: thread not stopped, unwinding 81µs, naming 9µs, 4096 bytes of stack copied
                """
        )
    }

    @Test("show: for a thread on the CPU the system call is only where its stack was taken")
    func callOfBusyThread() {
        var report = Sample.report()
        report.cause.verdict = .onCPU
        let page = StallPage(report: report).lines.map(\.plain).joined(separator: "\n")
        #expect(page.contains("on_cpu; its stack was taken in system call clock_nanosleep(0x1, 0x0)"))
    }

    @Test("sample, collapsed: functions that await another are printed as if they had called it")
    func collapsedAwaiting() throws {
        let frame = { StallReport.Frame(address: 1, function: $0) }
        let document = SampleDocument(
            process: .init(id: 4711),
            startedAt: Sample.start,
            durationNs: 0,
            samples: 1,
            missed: 0,
            ended: .complete,
            stacks: [
                .init(
                    count: 2,
                    threads: [.init(thread: Sample.thread, count: 2)],
                    method: "quiet",
                    heldNs: 0,
                    complete: true,
                    frames: ["read", "load()", "executor", "start"].map(frame),
                    async: .init(from: 1, frames: ["handle(_:)", "serve()"].map(frame), ends: .task)
                )
            ],
            failures: [],
            modules: [],
            cost: .init(
                stops: 0,
                heldNs: 0,
                longestHeldNs: 0,
                waitedNs: 0,
                callsRestarted: 0,
                stopsGivenUp: 0,
                samplerCPUNs: 0
            )
        )
        let collapsed = try StackFormat.collapsed.file(of: document.merged, document.subject)
        #expect(String(decoding: collapsed, as: UTF8.self) == "4711 main;serve();handle(_:);load();read 2\n")
        let page = SamplePage(document: document).lines.map(\.plain).joined(separator: "\n")
        #expect(
            page.contains(
                "      1  load()  \n      await  handle(_:)  \n      await  serve()  \n          the task starts here"
            )
        )
    }

    @Test("show: why there is no stack, and the stall's state")
    func withoutStack() {
        var report = Sample.report(state: .terminated)
        report.stacks = [
            .init(thread: Sample.thread, capturedAt: Sample.start, complete: false, error: "refused (EPERM)")
        ]
        (report.culprit, report.durationMinNs) = (nil, report.durationNs)
        let page = StallPage(report: report).lines.map(\.plain).joined(separator: "\n")
        #expect(page.contains("  culprit     no stack: refused (EPERM)\n"))
        #expect(page.contains("  lasted      612.345678ms (until the process died, at least 612ms)\n"))
        #expect(page.contains("Stack of the stalled thread 4711 main\n  no stack: refused (EPERM)\n"))
    }

    @Test("show: incomplete evidence: user and system time without their sum, a window without figures")
    func partialEvidence() {
        func evidence(_ evidence: StallReport.Evidence) -> String? {
            var report = Sample.report()
            report.cause.evidence = evidence
            return StallFacts(report: report).rows.first { $0.name == "evidence" }?.value.plain
        }
        #expect(
            evidence(.init(userNs: 1000, systemNs: 2000)) == "on CPU (1µs in user code, 2µs in the kernel)"
        )
        #expect(
            evidence(.init(runDelayNs: 5, windowNs: 9, userNs: 1, systemNs: 2))
                == "on CPU (1ns in user code, 2ns in the kernel), 5ns waiting for a CPU, in a window of 9ns"
        )
        #expect(evidence(.init(windowNs: 9)) == nil)
        #expect(evidence(.init(cpuNs: 7, userNs: 1)) == "7ns on CPU")
    }

    @Test("tail: what follows the verdict begins in the same column for each of them")
    func verdictColumn() {
        let starts = Verdict.known.map { verdict in
            var report = Sample.report()
            report.cause.verdict = verdict
            return StallLine.lines(report, isFirst: true, width: nil)[0].plain.split(separator: "main")[0].count
        }
        #expect(Set(starts).count == 1, "\(starts)")
    }

    @Test("list: no state or verdict is cut, and columns are left out before the culprit", arguments: [60, 80, 120])
    func wholeWords(width: Int) {
        var report = Sample.report(state: .terminated)
        (report.cause.verdict, report.watched.label) = (.diskWait, "a loop with a long name")
        report.culprit?.function = String(repeating: "g", count: 100)
        let list = StallList(
            stalls: [StallOutline(report)],
            ids: ShortIDs([report.id]),
            faults: ShortFingerprints([report.fingerprint]),
            width: width
        )
        let line = Array(list.lines)[1].plain
        #expect(line.contains("disk_wait") && line.contains("terminated") == line.contains("termin"), "\(line)")
        #expect(line.count { $0 == "g" } >= width * 3 / 8 - 1, "\(line)")
    }

    @Test("list: stalls of several services have theirs, and where there is little room their fault before their state")
    func services() {
        let reports = ["shop", "payments"].map { service in
            var report = Sample.report(id: .make(), state: .terminated)
            report.service = .init(name: service)
            return report
        }
        func list(_ reports: [StallReport], _ width: Int?) -> [String] {
            StallList(
                stalls: reports.map { StallOutline($0) },
                ids: ShortIDs(reports.map(\.id)),
                faults: ShortFingerprints(reports.map(\.fingerprint)),
                width: width
            ).lines.map(\.plain)
        }
        let whole = list(reports, nil)
        #expect(whole[0].hasSuffix("CULPRIT                         SERVICE   LABEL  FAULT"), "\(whole)")
        #expect(whole[2].contains("  payments  main   aa296773"), "\(whole)")
        #expect(!list([reports[1], reports[1]], nil)[0].contains("SERVICE"))
        let narrow = list(reports, 88)
        #expect(narrow[1].contains("612ms+") && narrow[1].hasSuffix("aa296773"), "\(narrow)")
        #expect(!narrow[0].contains("STATE"), "\(narrow)")
    }

    @Test("tail -f: the largest possible count, again and again")
    func hugeRepeats() {
        var (lines, run) = (RepeatLines(), Sample.run())
        let fault = Sample.report().fingerprint
        run.repeated = [Int.max, .max, 3, 5, 6].map {
            .init(fingerprint: fault, repeats: Sample.repeats(of: .make(), count: $0))
        }
        let told = lines.lines(run, culprits: [:]).map(\.plain)
        #expect(told.count == 3 && told[1].contains("×3 ") && told[2].contains("×6 "))
    }

    @Test("tail -f: two processes with one fault, and two programs of one watcher, are counted each for itself")
    func repeatsOfRuns() {
        var (lines, runs) = (RepeatLines(), [Sample.run(), Sample.run()])
        for index in 0..<2 { runs[index].id = ULID(rawValue: UInt128(index + 1) << 80) }
        func told(_ index: Int, _ count: Int, _ services: String?...) -> Int {
            runs[index].repeated = services.enumerated().map { number, service in
                let repeats = Sample.repeats(of: .make(), count: number == 0 ? count : 3)
                var fault = RunRecord.Repeated(fingerprint: Sample.report().fingerprint, repeats: repeats)
                fault.service = service
                return fault
            }
            return lines.lines(runs[index], culprits: [:]).count
        }
        #expect(told(0, 10, nil) == 1 && told(1, 3, nil) == 1)
        #expect(told(0, 11, nil) == 0 && told(1, 4, nil) == 0 && told(0, 20, nil) == 1)
        #expect(told(1, 10, "node", "redis") == 2 && told(1, 11, "node", "redis") == 0)
    }

    @Test("stacks: two or more library frames in a row are folded; --full shows all")
    func folding() {
        let stack = Sample.report().stacks[0]
        typealias Part = StackListing.Part
        #expect(
            StackListing(stack: stack, modules: []).parts
                == [.frame(0), .frame(1), .frame(2), .frame(3), .frame(4), .frame(5), .frame(6)]
        )
        func parts(_ own: String) -> [Part] {
            var stack = stack
            stack.frames = own.enumerated().map { .init(address: Address(UInt64($0)), own: $1 == "o") }
            return StackListing(stack: stack, modules: []).parts
        }
        #expect(parts("lllolll") == [.frame(0), .frame(1), .frame(2), .frame(3), .folded(3)])
        #expect(
            parts("lllllolllo") == [.frame(0), .folded(3), .frame(4), .frame(5), .folded(2), .frame(8), .frame(9)]
        )
        #expect(parts("llllllllllll") == (0..<10).map(Part.frame) + [.folded(2)])
        #expect(parts("") == [])
        var all = StackListing(stack: stack, modules: [])
        all.showsAllFrames = true
        #expect(all.parts == (0..<7).map(Part.frame))
    }

    @Test("the frames left out of a deep stack are one line, and nothing is folded across it")
    func leftOut() {
        var stack = Sample.report().stacks[0]
        stack.frames = "lolllllo".enumerated().map { .init(address: Address(UInt64($0)), own: $1 == "o") }
        stack.leftOut = .init(after: 4, count: 98_976)
        let listing = StackListing(stack: stack, modules: [])
        #expect(
            listing.parts == [
                .frame(0), .frame(1), .folded(2), .leftOut(98_976), .folded(2), .frame(6), .frame(7),
            ]
        )
        #expect(listing.lines[4].plain == "       … 98,976 frames left out …")
    }

    @Test("recursion is folded on each side of the left-out frames, not across them")
    func recursionAroundGap() {
        var stack = Sample.report().stacks[0]
        stack.frames = Array(repeating: .init(address: Address(1), function: "walk", own: true), count: 8)
        stack.leftOut = .init(after: 4, count: 90)
        let again = StackListing.Part.repeated(.init(period: 1, count: 3))
        #expect(
            StackListing(stack: stack, modules: []).parts == [.frame(0), again, .leftOut(90), .frame(4), again]
        )
        stack.leftOut = .init(after: 2, count: 90)
        #expect(
            StackListing(stack: stack, modules: []).parts == [
                .frame(0), .frame(1), .leftOut(90), .frame(2), .repeated(.init(period: 1, count: 5)),
            ]
        )
    }

    @Test("left-out frames are also mentioned at the end, after it, and among cut frames", arguments: [7, 9, Int.max])
    func leftOutAtTheEnd(after: Int) {
        var stack = Sample.report().stacks[0]
        stack.leftOut = .init(after: after, count: 90)
        #expect(
            StackListing(stack: stack, modules: []).parts == (0..<7).map(StackListing.Part.frame) + [.leftOut(90)]
        )
        stack.frames = (0..<2000).map { .init(address: Address(UInt64($0)), own: true) }
        stack.leftOut = .init(after: 1500, count: 90)
        #expect(
            StackListing(stack: stack, modules: []).parts.suffix(2)
                == [.cut(2000 - StackListing.limit), .leftOut(90)]
        )
    }

    @Test(
        "what the compiler made is dim; a name that becomes twice as long with each of its parts is not demangled for that",
        .timeLimit(.minutes(1))
    )
    func madeUp() {
        let served = "$s4shop5serveyyYaF"
        let adapter = "$sxIeAgHr_xs5Error_pIegHrzo_s8SendableRzlTR"
        // Dictionaries of dictionaries: each has the one before twice, the second time as a reference.
        let dictionary = (0..<40).reduce("SDySiSiG") { inner, level in
            let place = level < 26 ? "\(UnicodeScalar(UInt8(65 + level)))" : level == 26 ? "_" : "\(level - 27)_"
            return "SDy\(inner)A\(place)G"
        }
        let symbols = [
            (adapter + "TQ0_", true), (adapter + "TA.219TQ0_", true), (served + "yyYaYbcfU_TATQ1_", true),
            ("$s4shop1SVAA1PA2aDP1fyyYaFTWTY0_", true), (served + "TQ1_", false), (served + "yyYaYbcfU_TQ0_", false),
            ("$s\(dictionary)D", false),
        ]
        var stack = Sample.report().stacks[0]
        for (symbol, isDim) in symbols {
            let frame = StallReport.Frame(kind: .awaiting, address: 1, function: "f", symbol: symbol, own: false)
            stack.async = .init(from: 0, frames: [frame], ends: .task)
            let listing = StackListing(stack: stack, modules: [], showsAllFrames: true)
            let line = listing.lines.first { $0.plain.contains("await") }?.coloured
            #expect(line?.contains("\u{1B}[2mf\u{1B}[0m") == isDim, "\(symbol)")
        }
    }

    @Test("two or more awaiting library functions are folded, beside own ones; --full shows all")
    func foldedAwaits() {
        var stack = Sample.report().stacks[0]
        stack.async = .init(
            from: 0,
            frames: "olllol".enumerated().map {
                .init(kind: .awaiting, address: Address(UInt64($0)), own: $1 == "o")
            },
            ends: .task
        )
        var listing = StackListing(stack: stack, modules: [])
        let folded = listing.lines.map(\.plain)
        #expect(folded.count { $0.contains("await") } == 4)
        #expect(folded.contains("       … 3 library functions await (--full shows them)"))
        listing.showsAllFrames = true
        #expect(listing.lines.count { $0.plain.contains("await") } == 6)
    }

    @Test("a stack of 100,000 frames is printed with bounded length")
    func hugeStack() {
        var stack = Sample.report().stacks[0]
        stack.frames = (0..<100_000).map { .init(address: Address(UInt64($0)), own: true) }
        #expect(StackListing(stack: stack, modules: []).parts.last == .cut(100_000 - StackListing.limit))
    }

    @Test("own frames are marked and bold")
    func ownFrames() {
        let listing = StackListing(stack: Sample.report().stacks[0], modules: Sample.report().modules)
        #expect(
            listing.lines[3].coloured
                == "  \u{1B}[1m▶\u{1B}[0m   2  \u{1B}[1mshop.Cart.total() -> Swift.Int\u{1B}[0m \u{1B}[2m+ 0x10\u{1B}[0m  "
                + "\u{1B}[2mshop\u{1B}[0m"
        )
        #expect(listing.lines[1].plain == "      0  clock_nanosleep + 0x10  libc.so.6")
    }

    @Test("hostile characters are made visible in every line, with and without colours")
    func hostile() throws {
        let report = try Sample.hostile()
        let lines =
            StallPage(report: report, showsAllFrames: true).lines + StallLine.lines(report, isFirst: true, width: nil)
            + Array(
                StallList(
                    stalls: [StallOutline(report)],
                    ids: ShortIDs([report.id]),
                    faults: ShortFingerprints([report.fingerprint]),
                    width: 80
                ).lines
            )
        for line in lines {
            #expect(!line.plain.commandsTerminal && !line.plain.contains("\n"), "\(line.plain)")
        }
        #expect(lines.contains { $0.plain.contains(#"\u{1B}]0;owned\u{7}"#) })
    }
}

@Suite("Text table")
struct TextTableTests {
    @Test("it fits by shrinking the columns that may shrink, in their order, to their minimum")
    func fits() {
        var table = TextTable([.init(title: "A"), .init(title: "B", minimum: 4), .init(title: "C", minimum: 3)])
        table.append(["aaaa", "bbbbbbbb", "cccccc"])
        func lines(_ width: Int?) -> [String] { table.lines(width: width).map(\.plain) }
        #expect(lines(nil) == ["A     B         C", "aaaa  bbbbbbbb  cccccc"])
        #expect(lines(20) == ["A     B       C", "aaaa  bbbbb…  cccccc"])
        #expect(lines(16) == ["A     B     C", "aaaa  bbb…  ccc…"])
        #expect(lines(5) == ["A   …", "aaaa…"])
    }

    @Test("a column without a value is left out first, then those of low rank")
    func leavesOut() {
        var table = TextTable([.init(title: "A"), .init(title: "B", rank: 1), .init(title: "C", rank: 2)])
        table.append(["aaaa", "bbbb", ""])
        #expect(table.lines(width: 11).map(\.plain) == ["A     B", "aaaa  bbbb"])
        var hiding = TextTable([
            .init(title: "A"), .init(title: "B", rank: 1, hidesEmpty: true), .init(title: "C", rank: 2),
        ])
        hiding.append(["aaaa", "", ""])
        #expect(hiding.lines(width: 80).map(\.plain) == ["A     C", "aaaa  "])
        #expect(hiding.lines(width: nil).map(\.plain) == ["A     B  C", "aaaa     "])
        hiding.append(["aaaa", "b", ""])
        #expect(hiding.lines(width: 80).map(\.plain) == ["A     B  C", "aaaa     ", "aaaa  b  "])
        table.append(["aaaa", "bbbb", "c"])
        #expect(table.lines(width: 11).map(\.plain) == ["A     C", "aaaa  ", "aaaa  c"])
    }

    @Test("wide characters count double, combining accents do not count")
    func widths() {
        #expect(StyledText("数据").width == 4 && StyledText("⚡ ✅ ▶ →").width == 9)
        #expect(StyledText("e\u{301}a").width == 2)
        #expect(StyledText("数据库").truncated(to: 4).plain == "数…")
        #expect(StyledText("abc").truncated(to: 0).plain == "")
    }
}

@Suite("Small parts")
struct SmallPartsTests {
    @Test("JSON on a terminal has control and invisible characters as escapes, which programs read as the same text")
    func jsonText() throws {
        let name = "a\u{7F}b\u{9B}31m\u{202E}c\u{E0001}é😀"
        let text = try JSONText.of([name])
        #expect(text == #"["a\u007fb\u009b31m\u202ec\udb40\udc01é😀"]"#)
        #expect(try JSONDecoder().decode([String].self, from: Data(text.utf8)) == [name])
    }

    @Test("stalls that are only counted since another day are listed with the date")
    func repeatsSince() throws {
        let noon = try #require(Timestamp(rfc3339: "2026-11-18T12:00:00Z"))
        let repeats = StallReport.Repeats(
            count: 37,
            report: nil,
            firstAt: noon,
            lastAt: noon,
            totalNs: 0,
            longestNs: 0
        )
        let texts = ([1, 3 * 86_400] as [Int64]).map { repeats.short(noon.advanced(byNanoseconds: $0 * 1_000_000_000)) }
        #expect(texts == ["×37 since \(noon.timeOfDay)", "×37 since \(noon.withoutYear.dropLast(3))"])
        #expect(texts.map(\.count) == [15, 21])
    }

    @Test("short ids: eight characters, or as many as needed to be unique")
    func shortIDs() {
        #expect(ShortIDs([]).length == 8)
        let base = ULID(rawValue: 1 << 100)
        #expect(ShortIDs([base, base]).length == 8)
        #expect(ShortIDs([base, ULID(rawValue: base.rawValue + 1)]).length == 26)
        let ids = (0..<100).map { _ in ULID.make() }
        let short = ShortIDs(ids)
        #expect(Set(ids.map(short.short)).count == 100)
    }

    @Test("short ids on a terminal: of ids that differ only at their end, the beginning and the end")
    func elidedIDs() {
        let ids = [1 << 100, 1 << 100 + 1, 1 << 101].map { ULID(rawValue: $0) }
        let short = ShortIDs(ids, elides: true)
        #expect(ids.map(short.short) == ["00000100…000000", "00000100…000001", "00000200"] && short.width == 15)
        let shown = ids.prefix(2).map { StallLine.lines(Sample.report(id: $0), isFirst: false, width: 200)[0].plain }
        #expect(shown.map { String($0.suffix(15)) } == ["00000100…000000", "00000100…000001"], "in tail and watch")
    }

    @Test(
        "JSON escapes characters that a terminal obeys; the value stays the same",
        arguments: ["\u{7F}", "\u{9B}", "\u{202E}", "\u{E0041}"]
    )
    func jsonText(text: String) throws {
        var report = Sample.report()
        report.metadata = ["k": "ä\(text)\"\\"]
        let json = try JSONText.of(report)
        #expect(!json.commandsTerminal)
        #expect(json.contains("ä"))
        #expect(try StallReport(json: Array(json.utf8)) == report)
    }
}
