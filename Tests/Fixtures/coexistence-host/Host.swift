import CCoexistence
import Glibc

/// A process that captures its own threads while it does what hosts do, and checks every stack.
///
///     coexistence-host --all [NAME…]    all or some scenarios, each in a separate process; a table; exits non-zero on a failure
///     coexistence-host NAME             one scenario
///     coexistence-host --list
@main
enum Host {
    static func main() {
        switch CommandLine.arguments.dropFirst().first {
        case "--all": exit(runAll(CommandLine.arguments.dropFirst(2)) ? 0 : 1)
        case "--list": Scenario.all.forEach { print($0.name) }
        case "throw": exit(coexist_throw(1000) > 0 ? 0 : 1)
        case let name?: exit(run(name) ? 0 : 1)
        case nil:
            print("usage: coexistence-host --all [NAME…] | --list | NAME")
            exit(64)
        }
    }

    private static func run(_ name: String) -> Bool {
        guard let scenario = Scenario.all.first(where: { $0.name == name }) else {
            print("no such scenario: \(name)")
            return false
        }
        let trial = Trial()
        do {
            try scenario.body(trial)
        } catch {
            trial.complain("threw \(error)")
        }
        print(trial.line(for: name))
        return !trial.hasFailed
    }

    private static func runAll(_ names: ArraySlice<String>) -> Bool {
        let scenarios = Scenario.all.filter { names.isEmpty || names.contains($0.name) }
        print(Trial.head)
        var failed: [String] = []
        for scenario in scenarios {
            let (status, text) = Child.run([scenario.name])
            let line = text.split(separator: "\n").last { $0.hasPrefix(scenario.name) }
            print(
                line
                    ?? "\(Trial.padded(scenario.name, 28)) FAILED   ended with wait status \(status): \(text.suffix(200))"
            )
            if status != 0 || line == nil { failed.append(scenario.name) }
        }
        print("\(scenarios.count - failed.count) of \(scenarios.count) scenarios passed. \(failed)")
        return failed.isEmpty && !scenarios.isEmpty
    }
}

/// An activity of a host.
struct Scenario: Sendable {
    var name: String
    var body: @Sendable (Trial) throws -> Void

    init(_ name: String, _ body: @escaping @Sendable (Trial) throws -> Void) {
        self.name = name
        self.body = body
    }

    static var all: [Scenario] { handlers + covers + senders + stacks + waits + lives + sandboxes + exceptions }
}

enum Child {
    /// Runs this program with other arguments. Returns its wait status, −1 if it hung, and its output.
    static func run(_ arguments: [String], environment entry: String? = nil) -> (status: Int32, text: String) {
        let all = ["coexistence-host"] + arguments
        var pointers = unsafe all.map { unsafe UnsafePointer(strdup($0)) } + [nil]
        var text = [CChar](repeating: 0, count: 16 << 20)
        let status = unsafe pointers.withUnsafeMutableBufferPointer { pointers in
            unsafe text.withUnsafeMutableBufferPointer { text in
                unsafe coexist_run(pointers.baseAddress!, entry, text.baseAddress!, text.count)
            }
        }
        return (status, String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self))
    }
}
