import Glibc

/// Runs a program from the directory of the test bundle.
package struct Fixture {
    package let lines: [String]
    package let status: Int32

    package struct Failure: Error {
        package let reason: String

        package init(reason: String) { self.reason = reason }
    }

    /// - Parameters:
    ///   - environment: Assignments in shell syntax.
    ///   - seconds: The time after which it is killed. Far more than it takes beside other load.
    package static func run(
        _ name: String,
        _ argument: String = "",
        unlimitedStack: Bool = false,
        environment: String = "",
        seconds: Int = 450
    ) throws -> Fixture {
        let limit = unlimitedStack ? "ulimit -s unlimited; " : ""
        let program = try directory() + "/" + name
        // The time limit is for a fixture that hangs: the test then fails because of its lines.
        return try run(command: "\(limit)timeout \(seconds) env \(environment) '\(program)' \(argument)")
    }

    /// - Parameter command: In shell syntax.
    package static func run(command: String) throws -> Fixture {
        guard let output = unsafe popen(command + " 2>/dev/null", "r")
        else {
            throw Failure(reason: "popen: errno \(errno)")
        }
        var text: [UInt8] = []
        var byte = unsafe getc(output)
        while byte != EOF {
            text.append(UInt8(truncatingIfNeeded: byte))
            byte = unsafe getc(output)
        }
        let status = unsafe pclose(output)
        return Fixture(
            lines: String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init),
            status: status
        )
    }

    package static func directory() throws -> String {
        guard let path = unsafe realpath("/proc/self/exe", nil) else { throw Failure(reason: "no /proc/self/exe") }
        defer { unsafe free(path) }
        return unsafe String(cString: path).split(separator: "/", omittingEmptySubsequences: false)
            .dropLast().joined(separator: "/")
    }
}
