import Glibc
import StallReading
import StallReports
import TestSupport
import Testing

@testable import stall_monitor

@Suite("top's keys")
struct KeyTests {
    private func keys(_ texts: String...) -> [KeyPress] {
        var decoder = KeyDecoder()
        return texts.flatMap { decoder.take(Array($0.utf8)) } + decoder.settle()
    }

    @Test("keys are decoded from what a terminal sends, even if a sequence arrives in parts")
    func decodes() {
        #expect(keys("q") == [.character("q")])
        #expect(keys("\u{1B}[A\u{1B}[B\u{1B}OA\u{1B}OB") == [.up, .down, .up, .down])
        #expect(keys("\u{1B}", "[", "5", "~j") == [.pageUp, .character("j")])
        #expect(keys("\u{1B}[6~\u{1B}[H\u{1B}[4~\r") == [.pageDown, .home, .end, .enter])
        #expect(keys("a\u{1A}") == [.character("a"), .suspend])
        #expect(keys("\u{1B}") == [.escape] && keys("\u{1B}\u{1B}[A") == [.escape, .up])
        // A key that no screen knows, a letter that is not ASCII, and something that is no sequence.
        #expect(keys("\u{1B}[15~x", "é", "\u{1}") == [.character("x")])
        #expect(keys("\u{1B}[" + String(repeating: "9", count: 100) + "Aq").last == .character("q"))
    }
}

@Suite("top's state")
struct TopStateTests {
    private let runs = (1...3).map { TopState.Row.process(run: ULID(rawValue: $0)) }

    /// The state after these keys, with this many rows visible at once.
    private func state(_ keys: KeyPress..., rows: [TopState.Row]? = nil, length: Int = 0) -> TopState {
        var state = TopState()
        for key in keys { state.press(key, rows: rows ?? runs, room: 2, length: length) }
        return state
    }

    @Test("keys move the selection, but not past either end")
    func moves() {
        #expect(state(.down).selected == runs[1] && state(.down, .up, .up).selected == runs[0])
        #expect(state(.down, .character("j"), .down, .down).selected == runs[2])
        #expect(state(.pageDown).selected == runs[2] && state(.end).selected == runs[2])
        #expect(state(.end, .character("g")).selected == runs[0])
        #expect(state(.down, rows: []).selected == nil)
    }

    @Test("a selection follows its row when rows move; when the row disappears, the one in its place is")
    func settles() {
        var state = state(.down)
        state.settle(runs.reversed())
        #expect(state.selected == runs[1])
        state.settle([runs[1], runs[0]])
        #expect(state.selected == runs[1])
        state.settle([runs[0]])
        #expect(state.selected == runs[0])
        state.settle([])
        #expect(state.selected == nil)
    }

    @Test("Enter opens the selected row's page; it scrolls to its end; q goes back, then quits")
    func pages() {
        #expect(state(.down, .enter).page == runs[1] && state(.enter, rows: []).page == nil)
        #expect(state(.enter, .down, length: 5).scroll == 1)
        #expect(state(.enter, .pageDown, .pageDown, .pageDown, length: 5).scroll == 3)
        #expect(state(.enter, .character("G"), .up, length: 5).scroll == 2)
        #expect(state(.enter, .down, length: 1).scroll == 0)
        let back = state(.enter, .character("q"))
        #expect(back.page == nil && !back.isOver && back.selected == runs[0])
        #expect(state(.enter, .escape, .character("q")).isOver)
    }

    @Test("f on a page scrolls to the flame graph or the stacks when they are read, which may be below the screen")
    func flame() {
        let page: [StyledText] = ["612ms stall", "", "Where", "", "Flame graph of 1 stall", "a", "b", "c"]
        var state = state(.enter, .character("f"), length: 8)
        state.take(page, room: 3)
        #expect(state.showsFlame && state.scroll == 4)
        state.press(.home, rows: runs, room: 3, length: 8)
        state.take(page, room: 3)
        #expect(state.scroll == 0)
        state.press(.character("f"), rows: runs, room: 3, length: 8)
        state.take(page.map { $0 == page[4] ? "Stacks of thread 1" : $0 }, room: 6)
        #expect(!state.showsFlame && state.scroll == 2)
    }

    @Test("without a live screen its title wraps at the terminal's width")
    func title() {
        let table = LiveTable(snapshot: LiveSnapshot(at: Sample.start, processes: []), width: 40)
        #expect(table.lines.allSatisfy { $0.plain.count <= 40 } && table.lines.count > 3, "\(table.lines.map(\.plain))")
    }

    private static func stall(
        _ report: StallReport,
        _ state: StallState = .ongoing,
        processID: Int32? = nil
    ) -> LiveStall {
        LiveStall(
            report: report.id,
            state: state,
            rule: report.rule,
            watched: report.watched,
            watch: 1,
            processID: processID,
            startedAt: report.startedAt,
            startedMonotonicNs: 1,
            detectedAt: report.detectedAt,
            lastSeenAt: report.startedAt,
            lastSeenMonotonicNs: 2,
            durationNs: 1,
            durationMinNs: 1,
            durationMaxNs: 1
        )
    }

    /// The record of the process that wrote the report.
    private static func record(of report: StallReport) -> LiveRecord {
        LiveRecord(
            run: ULID(rawValue: 1),
            writer: .init(
                host: report.host,
                service: report.service,
                process: .init(pid: 4711),
                startedAt: report.startedAt,
                monitorVersion: "0.1.0",
                memory: nil
            ),
            status: .init(updatedAt: report.startedAt)
        )
    }

    @Test("a stall that has ended, and whose report does not say so yet, is listed and not counted as ongoing")
    func endedStalls() {
        let stalls = [StallState.ongoing, .recovered].map { Self.stall(Sample.report(id: .make()), $0) }
        var row = LiveSnapshot.Row(state: .stalled, record: Self.record(of: Sample.report()), stalls: [])
        for (shown, count) in [(stalls, "1"), ([stalls[1]], "0")] {
            row.stalls = shown.map { .init(live: $0) }
            let lines = LiveTable(snapshot: LiveSnapshot(at: Sample.start, processes: [row]), width: nil).lines
                .map { $0.plain.split(separator: " ").map(String.init) }
            // The title, an empty line, the heading, the process; PID, SERVICE, STATE, ALIVE, LOOPS and STALLS.
            #expect(lines[0][1] == count && lines[3][5] == count, "\(lines)")
            #expect(lines.last?.contains("recovered") == true, "\(lines)")
        }
    }

    @Test("a stall whose watcher has died is abandoned, as in lists; its number is that of the watched process")
    func deadWatcher() {
        let cases: [(Int32?, String, String)] = [(nil, "terminated", "4711"), (42, "abandoned", "42")]
        for (watched, state, number) in cases {
            let report = Sample.report()
            let stall = Self.stall(report, processID: watched)
            let row = LiveSnapshot.Row(state: .dead, record: Self.record(of: report), stalls: [.init(live: stall)])
            let table = LiveTable(snapshot: LiveSnapshot(at: Sample.start, processes: [row]), width: nil)
            let words = table.lines.last?.plain.split(separator: " ").map(String.init) ?? []
            #expect(words.contains(state) && words.dropFirst().first == number, "\(words)")
        }
    }

    @Test("--service chooses a watcher from outside by what it watches, as in lists, and not by its own name")
    func watcherService() {
        var run = Sample.run()
        run.targets = [.init(pid: 42, executable: "/usr/bin/python3")]
        run.watched = [.init(type: .eventLoop, label: "python3", watchedNs: 1)]
        run.watched[0].service = "python3"
        var writer = Sample.report()
        writer.service = .init(name: "stall-monitor")
        var row = LiveSnapshot.Row(state: .watching, record: Self.record(of: writer), stalls: [])
        func isShown(_ service: String) -> Bool {
            let snapshot = LiveSnapshot(at: Sample.start, processes: [row])
            return !snapshot.chosen(by: StallSelection(services: [NamePattern(service)])).processes.isEmpty
        }
        // The record of a monitor in its own process.
        #expect(isShown("stall-monitor") && !isShown("python3"))
        row.watcher = run
        #expect(isShown("python*") && !isShown("node") && !isShown("stall-monitor"))
    }

    @Test("the page of a watcher from outside has the processes that it watches, each with its last program")
    func watchedProcesses() {
        var row = LiveSnapshot.Row(state: .watching, record: Self.record(of: Sample.report()), stalls: [])
        #expect(row.targetFacts.isEmpty)
        row.watcher = Sample.run()
        let programs: [(Int32, String)] = [(42, "/bin/sh"), (42, "/usr/bin/python3"), (7, "/usr/bin/node")]
        row.watcher?.targets = programs.map { .init(pid: $0, executable: $1) }
        let facts = row.targetFacts.map { "\($0): \($1.plain)" }
        #expect(facts == ["Watches: 7  /usr/bin/node", ": 42  /usr/bin/python3"])
        row.watcher?.targets = (1...6).map { .init(pid: $0) }
        #expect(row.targetFacts.count == 5 && row.targetFacts.last?.1.plain == "… 2 more")
    }

    @Test("l shows the latest stalls, and Enter opens one; s sorts them by start, duration and so on")
    func stalls() throws {
        let reports = (1...3).map { number in
            var report = Sample.report(id: ULID(rawValue: UInt128(number)))
            report.durationNs = Int64(number * 7 % 5) * 1_000_000_000
            return StallOutline(report)
        }
        var content = TopContent(snapshot: LiveSnapshot(at: Sample.start, processes: []))
        var state = state(.character("l"))
        #expect(state.view == .stalls && self.state(.character("l"), .character("l")).view == .live)
        #expect(TopScreen(state: state, content: content, width: 100, height: 10).lines[0].plain.contains("reading"))
        content.stalls = ListOrder.started.sorted(reports).reversed()
        let screen = TopScreen(state: state, content: content, width: 100, height: 10)
        #expect(screen.rows == [3, 2, 1].map { .stall(ULID(rawValue: $0)) })
        #expect(screen.lines[0].plain.hasSuffix("the latest 3 stalls, by started"), "\(screen.lines[0].plain)")
        #expect(screen.lines.last?.plain.contains("f faults") == true)
        state.press(.enter, rows: screen.rows, room: screen.room)
        #expect(state.page == .stall(reports[2].id))
        #expect(self.state(.character("l"), .character("s")).stallOrder == .duration)
    }

    @Test("what was read for a page or an order that keys have changed meanwhile is not shown under the new one's name")
    func overtaken() {
        let (first, second) = (runs[0], runs[1])
        var read = TopContent(snapshot: LiveSnapshot(at: Sample.start, processes: []))
        read.page = ["page of the first"]
        read.pageOf = TopContent.Page(row: first, showsFlame: false)
        let open = state(.enter)
        #expect(open.page == first && read.shown(in: open, after: TopContent()).page == read.page)
        // Back, and into the second row's page, which has not been read.
        let other = state(.enter, .character("q"), .down, .enter)
        #expect(other.page == second && read.shown(in: other, after: TopContent()).page == nil)
        #expect(read.shown(in: state(), after: read).page == nil)
        // The stacks stay until the flame graph is read.
        let flame = state(.enter, .character("f"))
        let late = read.shown(in: flame, after: read)
        #expect(late.page == read.page && late.pageOf != flame.wantedPage)
        let stalls = (1...3).map { number in
            var report = Sample.report(id: ULID(rawValue: UInt128(number)))
            report.durationNs = Int64(number * 7 % 5) * 1_000_000_000
            return StallOutline(report)
        }
        read.stalls = ListOrder.started.sorted(stalls).reversed()
        let sorted = read.shown(in: state(.character("l"), .character("s")), after: read).stalls
        #expect(sorted?.map(\.durationNs) == [4_000_000_000, 2_000_000_000, 1_000_000_000])
    }

    @Test("a page names the command that shows all of it: of a stall with its id, of a fault with its fingerprint")
    func hints() throws {
        let fixture = try ReportsFixture()
        var report = Sample.report()
        // Library calls below another one, which the fault's tree folds.
        report.stacks[0].frames.insert(
            contentsOf: (1...3).map { number in
                var frame = report.stacks[0].frames[4]
                frame.function = "library\(number)"
                return frame
            },
            at: 4
        )
        try fixture.store.write(report)
        let reader = try TopReader()
        for (page, name) in [(TopState.Row.stall(report.id), "ID"), (.fault(report.fingerprint), "FINGERPRINT")] {
            reader.look(
                .init(
                    paths: [fixture.path],
                    selection: .everything,
                    view: .live,
                    order: .total,
                    stallOrder: .started,
                    page: page,
                    style: PageStyle()
                )
            )
            var content = try reader.take()
            try waitUntil {
                content = try content ?? reader.take()
                return content != nil
            }
            let text = (content?.page ?? []).map(\.plain).joined(separator: "\n")
            #expect(text.contains("'stall-monitor show \(name) --full' shows "), "\(text)")
        }
    }

    @Test("a file that cannot be read is named, in each refresh and once", arguments: [TopState.View.stalls, .faults])
    func unreadable(view: TopState.View) throws {
        let fixture = try ReportsFixture()
        try fixture.store.write(Sample.report())
        try fixture.plant("{ torn".utf8)
        let reader = try TopReader()
        for _ in 0..<3 {
            reader.look(
                .init(
                    paths: [fixture.path],
                    selection: .everything,
                    view: view,
                    order: .total,
                    stallOrder: .started,
                    page: nil,
                    style: PageStyle()
                )
            )
            var content = try reader.take()
            try waitUntil {
                content = try content ?? reader.take()
                return content != nil
            }
            let notes = try #require(content?.notes)
            #expect(notes.count == 1 && notes[0].hasPrefix("\(fixture.path)/stall-"), "\(notes)")
        }
    }

    @Test("f shows the faults, p and Escape the processes; s cycles through the sort orders of each")
    func views() {
        let faults = state(.down, .character("f"))
        #expect(faults.view == .faults)
        #expect(state(.character("f"), .character("f")).view == .live && state(.character("f"), .escape).view == .live)
        #expect(state(.character("s")).processOrder == .pid && state(.character("s")).faultOrder == .total)
        #expect(state(.character("f"), .character("s")).faultOrder == .count)
        var round = TopState()
        for _ in TopState.ProcessOrder.allCases { round.press(.character("s"), rows: runs, room: 2) }
        #expect(round.processOrder == .state)
        #expect(state(.character("x"), .pageUp).isOver == false)
    }
}
