import Dispatch
import Foundation
import StallMonitor
import StallMonitorLoops

/// A worker with dispatch queues only: it has no loop and no task. It writes an invoice every 100 ms. Now and then the archive is packed,
/// and the queue of the invoices stalls, because it waits for the archive's queue.
@main struct InvoiceWorker {
    static let invoices = DispatchQueue(label: "invoices")
    static let archive = DispatchQueue(label: "archive")

    static func main() {
        let monitor = StallMonitor.start(watching: [.queue(invoices), .queue(archive)])

        let clock = DispatchSource.makeTimerSource(queue: invoices)
        clock.schedule(deadline: .now(), repeating: .milliseconds(100))
        clock.setEventHandler(handler: writeInvoice)
        clock.resume()
        archive.asyncAfter(deadline: .now() + .seconds(1), execute: packArchive)

        // On a queue that nothing of the worker's stalls.
        signal(SIGTERM, SIG_IGN)
        let termination = DispatchSource.makeSignalSource(signal: SIGTERM, queue: .global())
        termination.setEventHandler { @Sendable in
            monitor.stop()
            print("ended in order")
            exit(0)
        }
        termination.resume()
        print("working")
        dispatchMain()
    }

    static func writeInvoice() {
        fileInvoice(number: 7)
    }

    /// Stalls while the archive is packed. `archive.async` would not.
    static func fileInvoice(number: Int) {
        archive.sync { _ = number.description }
    }

    /// Takes long, and may: the archive's queue has nothing else to do. The invoices' queue has.
    static func packArchive() {
        let end = DispatchTime.now() + .milliseconds(800)
        var packed: UInt64 = 1
        while DispatchTime.now() < end {
            for _ in 0..<1_000 { packed = packed &* 6_364_136_223_846_793_005 &+ 1 }
        }
        withExtendedLifetime(packed) {}
    }
}
