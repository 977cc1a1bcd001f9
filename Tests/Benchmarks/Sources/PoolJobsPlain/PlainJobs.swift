import Foundation
import PoolJobs

/// The work in a program that has nothing of the monitor in it.
@main
struct PlainJobs {
    static func main() async {
        await PoolJobs.run(
            Array(CommandLine.arguments.dropFirst()),
            workers: ProcessInfo.processInfo.activeProcessorCount
        )
    }
}
