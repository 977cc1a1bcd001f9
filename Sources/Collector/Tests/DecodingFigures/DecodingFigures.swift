import Foundation
import StallStore

/// Measures what it costs to decode a report in both ways, in turns, so that other work on the machine affects both alike.
///
///     DecodingFigures REPORT [ROUNDS]
///
/// Prints microseconds of processor time for one report, the medians of the rounds.
@main struct DecodingFigures {
    private static let reports = 200

    static func main() throws {
        let arguments = CommandLine.arguments
        guard arguments.count > 1, let rounds = arguments.count > 2 ? Int(arguments[2]) : 15, rounds > 0 else {
            print("usage: DecodingFigures REPORT [ROUNDS]")
            exit(64)
        }
        let bytes = [UInt8](try Data(contentsOf: URL(filePath: arguments[1])))
        guard ArrivedDocument.quickly(bytes) != nil else {
            FileHandle.standardError.write(Data("the report is not decoded from the tape\n".utf8))
            exit(1)
        }
        var (quick, thorough): ([Double], [Double]) = ([], [])
        for _ in 0..<rounds {
            quick.append(time { _ = ArrivedDocument.quickly(bytes) })
            try thorough.append(time { _ = try ArrivedDocument.thoroughly(bytes) })
        }
        let (tape, decoder) = (median(quick), median(thorough))
        let times = decoder / tape
        print(
            String(
                format: "{\"tape_us\":%.1f,\"own_decoder_us\":%.1f,\"own_decoder_times\":%.1f}",
                tape,
                decoder,
                times
            )
        )
    }

    private static func time(_ work: () throws -> Void) rethrows -> Double {
        let start = processorMicroseconds()
        for _ in 0..<reports { try work() }
        return (processorMicroseconds() - start) / Double(reports)
    }

    private static func processorMicroseconds() -> Double {
        var time = timespec()
        unsafe clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Double(time.tv_sec) * 1e6 + Double(time.tv_nsec) / 1e3
    }

    private static func median(_ values: [Double]) -> Double { values.sorted()[values.count / 2] }
}
