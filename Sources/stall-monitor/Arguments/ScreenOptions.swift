import ArgumentParser

extension ColourChoice: ExpressibleByArgument {}

/// How text is shown.
struct ColourOption: ParsableArguments {
    @Option(
        name: .customLong("color"),
        help: "Colours: on a terminal only, and not with $NO_COLOR; or always; or never."
    )
    var choice: ColourChoice = .auto

    func terminal() -> Terminal { .current(colours: choice) }
}

/// How pages and lists are shown.
struct ScreenOptions: ParsableArguments {
    @OptionGroup var colour: ColourOption

    @Flag(help: "Write straight to the terminal, without $PAGER.")
    var noPager = false

    func terminal() -> Terminal { colour.terminal() }

    /// Through a pager where the text is longer than the screen.
    func write(_ lines: some Sequence<StyledText>, on terminal: Terminal) throws(CommandFailure) {
        guard !noPager, let height = terminal.height, terminal.movesCursor, let pager = Pager.fromEnvironment(),
            lines.dropFirst(height - 1).contains(where: { _ in true }),
            try pager.show(lines, on: terminal)
        else { return try Output.write(lines, on: terminal) }
    }
}
