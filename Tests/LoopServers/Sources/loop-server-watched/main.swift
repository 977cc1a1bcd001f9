import LoopServers
import StallMonitor
import StallMonitorLoops

// loop-server-watched KIND DIRECTORY
let arguments = CommandLine.arguments
let kind = arguments.count > 1 ? arguments[1] : ""
// The loop that connects to the server is not judged: its requests are answered late.
let loop: WatchSelection = kind == "foundation" ? .foundationMain : .everyLoop { $0.hasPrefix("NIO-ELT") }
let monitor = StallMonitor.start(
    .init(directory: arguments.count > 2 ? arguments[2] : "stall-reports", repeats: .everyStall),
    watching: [loop, .taskPool]
)
serve(kind)
