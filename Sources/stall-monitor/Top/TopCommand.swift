import ArgumentParser
import Glibc
import ProcessWatch
import StallReading
import StallReports

struct TopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top",
        abstract: "Shows watched processes and ongoing stalls, live.",
        discussion: """
            EXAMPLES
              stall-monitor top
              stall-monitor top /var/lib/shop/stalls --every 200ms
              stall-monitor top --format json | jq '.processes[].stalls[].live'

            KEYS
              up, down, k, j  pick a row; also Page Up, Page Down, Home, End
              Enter           open the picked process, stall or fault
              f, l, p         faults; the latest 200 stalls; processes and their stalls
              s               sort by the next column
              f on a page     stacks as a flame graph, and back
              q, Escape       back; from the tables q quits
              Ctrl-Z          stops it; the shell's fg continues it

            On a terminal the screen is refreshed until you quit; elsewhere, with --once and as JSON it is shown once. STALLS \
            counts ongoing stalls; l shows those that have ended, too. ALIVE is the process's state in the kernel now. A dead \
            process is shown with its last state and how it ended, until the next start of a monitor in the directory closes its \
            reports. If the directory goes away while top runs, a note says so, and the last state stays until it is back.

            Exit code 0: done. 1: the directory, or a live record in it, cannot be read. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Flag(help: "Show once, and exit.")
    var once = false

    @Option(help: ArgumentHelp("The time between refreshes, 10ms or more.", valueName: "length"))
    var every: DurationText = DurationText(nanoseconds: 1_000_000_000)

    @OptionGroup var colour: ColourOption

    @Option(help: "Text for people, or JSON for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        try reports.refuseAddresses()
        if every.nanoseconds < 10_000_000 { throw ValidationError("--every must be 10ms or more") }
    }

    func run() throws {
        let terminal = colour.terminal()
        if format == .text, !once, terminal.movesCursor { return try watch() }
        var failures: [ReportError] = []
        let snapshot = try reports.sources.snapshot(of: selection.stalls, &failures)
        switch format {
        case .json: try Output.writeJSON(snapshot)
        case .text: try Output.write(LiveTable(snapshot: snapshot, width: terminal.width).lines, on: terminal)
        }
        try ReportSources.report(failures)
    }

    private func watch() throws {
        ReportIndexes.beQuiet()
        var run = try TopRun(reports.paths, selection.stalls, every: .nanoseconds(every.nanoseconds), colour)
        if let signal = try run.run() { throw ExitCode(128 + signal) }
    }
}

/// `top` on a terminal, until a key or a signal ends it.
struct TopRun {
    private let paths: [String]
    private let selection: StallSelection
    private let every: Duration
    private let colour: ColourOption
    private let signals: WatchSignals
    private let reader: TopReader

    private var state = TopState()
    private var content = TopContent()
    private var decoder = KeyDecoder()
    private var nextLook = ContinuousClock.now
    private var isLooking = false

    /// How long an incomplete key sequence waits for the rest.
    private static let keyPatience = Duration.milliseconds(50)

    init(_ paths: [String], _ selection: StallSelection, every: Duration, _ colour: ColourOption) throws {
        (self.paths, self.selection, self.every, self.colour) = (paths, selection, every, colour)
        // This comes first: a signal must not end the process before the terminal is restored.
        signals = try WatchSignals.taken()
        reader = try TopReader()
    }

    /// - Returns: The signal that ended it; nil if a key did.
    mutating func run() throws -> Int32? {
        try RawTerminal.enter()
        defer { RawTerminal.leave() }
        while !state.isOver {
            look()
            try draw()
            let isPressed = wait()
            while let signal = signals.take() { if signal.number != SIGCHLD { return signal.number } }
            if isLooking { try takeAnswer() }
            guard isPressed else { continue }
            // The terminal has gone.
            guard let bytes = RawTerminal.read() else { return SIGHUP }
            let keys = decoder.take(bytes)
            press(keys)
            if keys.contains(.suspend) { try RawTerminal.suspend() }
        }
        return nil
    }

    private var terminal: Terminal { colour.terminal() }

    private var screen: TopScreen {
        let terminal = terminal
        return TopScreen(state: state, content: content, width: terminal.width ?? 80, height: terminal.height ?? 24)
    }

    private mutating func look() {
        guard !isLooking, nextLook <= .now else { return }
        (isLooking, nextLook) = (true, .now + every)
        reader.look(
            TopReader.Request(
                paths: paths,
                selection: selection,
                view: state.view,
                order: state.faultOrder,
                stallOrder: state.stallOrder,
                page: state.page,
                style: PageStyle(
                    showsFlame: state.showsFlame,
                    hasColours: terminal.hasColours,
                    width: terminal.width ?? 80
                )
            )
        )
    }

    /// - Throws: If the first refresh fails. A later one leaves what is shown, with a note: a directory that is removed meanwhile is made again
    ///   by the next report.
    private mutating func takeAnswer() throws {
        do {
            if let found = try reader.take() { show(found) }
        } catch {
            guard content.snapshot != nil else { throw error }
            isLooking = false
            content.notes = [(error as? ReportError).map { CommandFailure($0).message } ?? "\(error)"]
        }
    }

    private mutating func show(_ found: TopContent) {
        isLooking = false
        content = found.shown(in: state, after: content)
        if let page = content.page, content.pageOf == state.wantedPage { state.take(page, room: screen.room) }
        state.settle(screen.rows)
    }

    private mutating func press(_ keys: [KeyPress]) {
        for key in keys {
            let (before, screen) = (state, screen)
            state.press(key, rows: screen.rows, room: screen.room, length: content.page?.count ?? 0)
            guard Shown(before) != Shown(state) else { continue }
            // The contents of the new view have not been read yet.
            if before.page != state.page { (content.page, content.pageOf) = (nil, nil) }
            content.sort(as: state)
            nextLook = .now
            state.settle(self.screen.rows)
        }
    }

    /// The part of the state that decides what has to be read.
    private struct Shown: Equatable {
        let view: TopState.View
        let page: TopState.Row?
        let faultOrder: FaultOrder
        let stallOrder: ListOrder
        let showsFlame: Bool

        init(_ state: TopState) {
            (view, page, showsFlame) = (state.view, state.page, state.showsFlame)
            (faultOrder, stallOrder) = (state.faultOrder, state.stallOrder)
        }
    }

    /// Returns at a key, a signal, an answer, or when the next refresh is due.
    ///
    /// - Returns: Whether there is a key to read.
    private mutating func wait() -> Bool {
        var wanted = [signals.descriptor, reader.descriptor].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        if RawTerminal.hasKeys { wanted.append(pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)) }
        let rest = isLooking ? every : max(.zero, ContinuousClock.now.duration(to: nextLook))
        let limit = decoder.isWaiting ? min(rest, Self.keyPatience) : rest
        let count = unsafe poll(&wanted, nfds_t(wanted.count), max(1, Int32(clamping: limit.milliseconds)))
        if count == 0, decoder.isWaiting { press(decoder.settle()) }
        return count > 0 && wanted.count > 2 && wanted[2].revents != 0
    }

    private func draw() throws {
        let terminal = terminal
        let text = screen.lines.map { terminal.show($0) + "\u{1B}[K" }.joined(separator: "\n")
        // Lines are overwritten, not cleared first, which avoids flicker.
        try Output.write("\u{1B}[H" + text + "\u{1B}[J")
    }
}
