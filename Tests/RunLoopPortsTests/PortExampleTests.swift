import LoopTestSupport
import Testing

/// The example program prints the expected lines.
@Suite(.timeLimit(.minutes(10)))
struct PortExampleTests {
    @Test(
        "R33, R54: main and worker exchange check-in, commands and goodbye; a source registers, performs, unregisters"
    )
    func example() throws {
        let run = try Fixture.run("PortsExample")
        #expect(
            run.lines == [
                "main: worker checked in as worker 1",
                "worker: asked to reverse stressed",
                "main: worker answers desserts",
                "worker: asked to reverse lever",
                "main: worker answers revel",
                "main: worker says goodbye",
                "registry: a source was registered",
                "main: three commands buffered",
                "worker: performs draw, save, quit",
                "registry: a source was unregistered",
                "main: sources left: none",
            ]
        )
        #expect(run.status == 0)
    }
}
