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

    @Test("show: time that does not count is told beside the figures, if it is a tenth of the duration or more")
    func excludedTime() {
        var report = Sample.report()
        func page() -> String { StallBrief(report: report).lines.map(\.plain).joined(separator: "\n") }
        report.excludedNs = report.durationNs / 11
        #expect(!page().contains("do not count"))
        report.excludedNs = 4_700_000_000
        #expect(page().contains("\n        4.7s more do not count: the process was stopped, "), "\(page())")
    }

    @Test("in place of a culprit: why there is no stack, without the code and the advice, which the page has")
    func shortReason() {
        var report = Sample.report()
        let error = "not_stopped: the thread did not stop in time: look at the machine's load"
        report.stacks = [.init(thread: Sample.thread, capturedAt: Sample.start, complete: false, error: error)]
        report.culprit = nil
        #expect(report.culpritText == "no stack: the thread did not stop in time")
        let page = StallPage(report: report).lines.map(\.plain).joined(separator: "\n")
        #expect(page.contains("\n  no stack: \(error)\n"), "\(page)")
        for other in ["refused: EPERM", "refused (EPERM)", "Why: not: known"] {
            report.stacks[0].error = other
            #expect(report.culpritText == "no stack: \(other)")
        }
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
