import ArgumentParser
import Glibc
import ProcessWatch
import StallReports

struct TopCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "top",
        abstract: "Shows the watched processes, and the stalls under way as they grow.",
        discussion: """
            EXAMPLES
              stall-monitor top
              stall-monitor top /var/lib/shop/stalls --every 200ms
              stall-monitor top --format json | jq '.processes[].stalls[].live'

            KEYS
              up, down, k, j  pick a row; also Page Up, Page Down, Home, End
              Enter           open the picked process, stall or fault
              f, p            faults; processes and their stalls
              s               sort by the next column
              q, Escape       back; from the tables q quits

            On a terminal the screen is drawn again and again; elsewhere, with --once and as JSON it is shown once. ALIVE is what the \
            kernel says of a process now. A process that died is shown with its last state and how it ended, until the next start in \
            the directory has closed its reports.

            Exit code 0: done. 1: the directory, or a live record in it, cannot be read. 64: wrong usage. 130: ended by Ctrl-C.
            """
    )

    @OptionGroup var reports: ReportsArgument
    @OptionGroup(title: "Choosing") var selection: Selection

    @Flag(help: "Show it once, and end.")
    var once = false

    @Option(help: ArgumentHelp("How long between two looks.", valueName: "time"))
    var every: DurationText = DurationText(nanoseconds: 1_000_000_000)

    @OptionGroup var colour: ColourOption

    @Option(help: "For people or for programs.")
    var format: OutputFormat = .text

    func validate() throws {
        try reports.refuseAddresses()
        if every.nanoseconds < 10_000_000 { throw ValidationError("--every is 10ms or more") }
    }

    func run() throws {
        let terminal = colour.terminal()
        if format == .text, !once, terminal.movesCursor { return try watch() }
        var failures: [ReportError] = []
        let snapshot = try look(&failures)
        switch format {
        case .json:
            let text = String(decoding: try ReportJSON.encode(snapshot).dropLast(), as: UTF8.self)
            try Output.write(JSONText.escaped(text) + "\n")
        case .text: try Output.write(LiveTable(snapshot: snapshot, width: terminal.width).lines, on: terminal)
        }
        try ReportSources.report(failures)
    }

    private func watch() throws {
        var run = try TopRun(reports.paths, selection.stalls, every: .nanoseconds(every.nanoseconds), colour)
        if let signal = try run.run() { throw ExitCode(128 + signal) }
    }

    private func look(_ failures: inout [ReportError]) throws(CommandFailure) -> LiveSnapshot {
        try CommandFailure.wrapping { () throws(ReportError) in
            try reports.sources.snapshot(&failures).chosen(by: selection.stalls)
        }
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

    /// A part of a key's sequence waits so long for its rest.
    private static let keyPatience = Duration.milliseconds(50)

    init(_ paths: [String], _ selection: StallSelection, every: Duration, _ colour: ColourOption) throws {
        (self.paths, self.selection, self.every, self.colour) = (paths, selection, every, colour)
        // First of all: none is to end us before the terminal is as it was.
        signals = try Result { () throws(StartError) in try WatchSignals() }
            .mapError { CommandFailure("cannot take signals: \($0)") }.get()
        reader = try TopReader()
    }

    /// - Returns: the number of the signal that ended it; nil for a key.
    mutating func run() throws -> Int32? {
        try RawTerminal.enter()
        defer { RawTerminal.leave() }
        while !state.isOver {
            look()
            try draw()
            let isPressed = wait()
            while let signal = signals.take() { if signal.number != SIGCHLD { return signal.number } }
            if isLooking, let found = try reader.take() { take(found) }
            guard isPressed else { continue }
            // The terminal has gone.
            guard let bytes = RawTerminal.read(), !bytes.isEmpty else { return SIGHUP }
            press(decoder.take(bytes))
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
            TopReader.Wish(
                paths: paths,
                selection: selection,
                wantsFaults: state.view == .faults,
                order: state.faultOrder,
                page: state.page,
                width: terminal.width ?? 80
            )
        )
    }

    private mutating func take(_ found: TopContent) {
        isLooking = false
        let page = state.page == nil ? nil : found.page ?? content.page
        content = found
        content.page = page
        state.settle(screen.rows)
    }

    private mutating func press(_ keys: [KeyPress]) {
        for key in keys {
            let (before, screen) = (state, screen)
            state.press(key, rows: screen.rows, room: screen.room, length: content.page?.count ?? 0)
            guard before.page != state.page || before.view != state.view || before.faultOrder != state.faultOrder else {
                continue
            }
            // What is to be seen now was not read yet.
            if before.page != state.page { content.page = nil }
            if before.faultOrder != state.faultOrder { content.faults?.sort(by: state.faultOrder.isBefore) }
            nextLook = .now
            state.settle(self.screen.rows)
        }
    }

    /// Returns at a key, a signal, an answer, or when it is time for the next look.
    ///
    /// - Returns: whether there is a key to read.
    private mutating func wait() -> Bool {
        var wanted = [signals.descriptor, reader.descriptor].map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        if RawTerminal.hasKeys { wanted.append(pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)) }
        let rest = isLooking ? every : max(.zero, ContinuousClock.now.duration(to: nextLook))
        let limit = decoder.isWaiting ? min(rest, Self.keyPatience) : rest
        let (seconds, attoseconds) = limit.components
        let milliseconds =
            Int32(clamping: seconds.multipliedSaturated(by: 1000)) &+ Int32(attoseconds / 1_000_000_000_000_000)
        let count = unsafe poll(&wanted, nfds_t(wanted.count), max(1, milliseconds))
        if count == 0, decoder.isWaiting { press(decoder.settle()) }
        return count > 0 && wanted.count > 2 && wanted[2].revents != 0
    }

    private func draw() throws {
        let terminal = terminal
        let text = screen.lines.map { terminal.show($0) + "\u{1B}[K" }.joined(separator: "\n")
        // Not cleared before: what stays the same does not flicker.
        try Output.write("\u{1B}[H" + text + "\u{1B}[J")
    }
}
