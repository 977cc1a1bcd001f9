import RunLoopKit
import Synchronization

/// A custom input source: any thread adds commands to its buffer, and then makes a loop perform all of them at once. It notifies
/// a registry of the loops to which it is added and from which it is cancelled, so that others know where to reach it.
final class CommandSource: Sendable {
    struct Context: Sendable {
        let source: CommandSource
        let loop: EventRunLoop
    }

    private let buffer: Mutex<[String]>
    private let source: EventSource

    init(registry: CommandRegistry, perform: @escaping @Sendable ([String]) -> Void) {
        let shared = Shared()
        source = EventSource(
            onSchedule: { loop, _ in shared.source.map { registry.register(Context(source: $0, loop: loop)) } },
            onCancel: { loop, _ in registry.unregister(loop) },
            { _ in perform(shared.source?.takeCommands() ?? []) }
        )
        buffer = Mutex([])
        shared.source = self
    }

    func addToCurrentLoop() { EventRunLoop.current.add(source) }

    func invalidate() { source.invalidate() }

    /// Any thread. Nothing happens before ``fireAllCommands(on:)``.
    func add(_ command: String) { buffer.withLock { $0.append(command) } }

    /// Any thread. A signal alone does not wake a sleeping loop: the loop must be woken, too.
    func fireAllCommands(on loop: EventRunLoop) {
        source.signal()
        loop.wakeUp()
    }

    private func takeCommands() -> [String] {
        buffer.withLock { commands in
            defer { commands = [] }
            return commands
        }
    }

    /// Gives the callbacks, which are created before the source, access to it.
    private final class Shared: Sendable {
        private let content = Mutex(Weak())
        private struct Weak: Sendable { weak var source: CommandSource? }

        var source: CommandSource? {
            get { content.withLock { $0.source } }
            set { content.withLock { $0.source = newValue } }
        }
    }
}

/// The loops that accept commands. Updated by the sources' callbacks, on the threads that add and cancel them.
final class CommandRegistry: Sendable {
    private let contexts = Mutex<[CommandSource.Context]>([])
    private let onRegister: @Sendable (CommandSource.Context) -> Void

    init(onRegister: @escaping @Sendable (CommandSource.Context) -> Void) { self.onRegister = onRegister }

    func register(_ context: CommandSource.Context) {
        print("registry: a source was registered")
        contexts.withLock { $0.append(context) }
        onRegister(context)
    }

    func unregister(_ loop: EventRunLoop) {
        print("registry: a source was unregistered")
        contexts.withLock { $0.removeAll { $0.loop === loop } }
    }

    var isEmpty: Bool { contexts.withLock { $0.isEmpty } }
}

/// A worker with a command source: main waits for its registration,
/// buffers commands, makes the source perform them, and sends the end.
func commandSourceExample() {
    let main = EventRunLoop.current
    let registry = CommandRegistry { context in
        // On the worker's thread; the rest runs on main.
        main.perform {
            for command in ["draw", "save", "quit"] { context.source.add(command) }
            print("main: three commands buffered")
            context.source.fireAllCommands(on: context.loop)
        }
    }
    let thread = WorkerThread {
        let source = CommandSource(registry: registry) { commands in
            print("worker: performs \(commands.joined(separator: ", "))")
            if commands.last == "quit" { EventRunLoop.current.stop() }
        }
        source.addToCurrentLoop()
        EventRunLoop.current.run()
        source.invalidate()
        main.perform { main.stop() }
    }
    // Without this source main's loop would have only blocks, and would not wait.
    let keepAlive = EventSource { _ in }
    main.add(keepAlive)
    main.run()
    thread.join()
    keepAlive.invalidate()
    print("main: sources left: \(registry.isEmpty ? "none" : "some")")
}
