#if Command

    import Foundation
    import RunLoopKit

    /// The line by which a server says where it listens, and its reader.
    struct DemoAnnouncement {
        var port: Int
        var directory: String

        private static let prefix = "listening on http://127.0.0.1:"

        func print(forPeople: Bool) {
            Swift.print("\(Self.prefix)\(port), reports in \(directory)")
            if forPeople {
                for stall in DemoStall.allCases {
                    Swift.print("  curl 'http://127.0.0.1:\(port)/stall/\(stall.rawValue)?ms=600'   # \(stall.title)")
                }
                Swift.print("  stall-monitor tail -f \(directory)")
                Swift.print("ctrl-C ends it")
            }
            fflush(nil)
        }

        /// The port in a line that `print` wrote. Nil for another line.
        static func port(in line: String) -> Int? {
            guard line.hasPrefix(prefix) else { return nil }
            return Int(line.dropFirst(prefix.count).prefix { $0.isNumber })
        }
    }

    /// Ends the process when its standard input does, because whoever started it has gone.
    enum InputWatch {
        static func exitAtEnd() {
            let thread = Thread {
                while readLine(strippingNewline: false) != nil {}
                exit(0)
            }
            thread.start()
        }
    }

#endif
