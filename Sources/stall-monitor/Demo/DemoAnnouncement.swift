#if Command

    import Foundation
    import RunLoopKit

    /// The line by which a server says where it listens, and its reader.
    struct DemoAnnouncement {
        var port: Int
        var directory: String

        private static let prefix = "listening on http://127.0.0.1:"

        func text(forPeople: Bool) -> String {
            let line = "\(Self.prefix)\(port), reports in \(directory)\n"
            guard forPeople else { return line }
            let stalls = DemoStall.allCases.map {
                "  curl 'http://127.0.0.1:\(port)/stall/\($0.rawValue)?ms=600'    # \($0.title)\n"
            }
            return line + stalls.joined() + "  stall-monitor tail -f \(directory)\nctrl-C ends it\n"
        }

        /// The port in a line that `text` made. Nil for another line.
        static func port(in line: String) -> Int? {
            guard line.hasPrefix(prefix) else { return nil }
            return Int(line.dropFirst(prefix.count).prefix { $0.isNumber })
        }
    }

    /// Ends the process when its standard input does, because whoever started it has gone.
    enum InputWatch {
        static func exitAtEnd() {
            Thread {
                var byte: UInt8 = 0
                // Not readLine: it would hold the lock of `stdin`, and whoever flushes all streams would wait for it.
                while unsafe read(STDIN_FILENO, &byte, 1) > 0 {}
                // An end in order, if the server takes it.
                kill(getpid(), SIGTERM)
                sleep(5)
                exit(0)
            }.start()
        }
    }

#endif
