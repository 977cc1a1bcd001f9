import Foundation
import PoolJobs

/// The work in a program without any part of the monitor.
@main
struct PlainJobs {
    static func main() async {
        await PoolJobs.run(
            Array(CommandLine.arguments.dropFirst()),
            workers: ProcessInfo.processInfo.activeProcessorCount
        )
    }
}
