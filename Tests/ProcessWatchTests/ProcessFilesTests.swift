import CProcessWatch
import Glibc
import Testing

@testable import ProcessWatch

@Suite("What /proc says about a process")
struct ProcessFilesTests {
    @Test("A process has ended although its number belongs to another process")
    func usedAgain() throws {
        let child = try StartedCommand(["sleep", "600"].map { Array($0.utf8) })
        let handle = process_watch_open_process(child.processID)
        try #require(handle >= 0)
        defer { close(handle) }
        let (before, own) = (ProcessFiles(processID: child.processID), ProcessFiles(processID: getpid()))
        #expect(!before.hasEnded(by: handle) && !before.hasEnded(by: nil))
        kill(child.processID, SIGKILL)
        // It is ended when nobody has taken its status yet.
        while !before.hasEnded(by: nil) { usleep(1_000) }
        #expect(before.hasEnded(by: handle))
        while child.takeStatus() == nil { usleep(1_000) }
        // This process, in place of one that was given the number again.
        #expect(own.hasEnded(by: handle) && !own.hasEnded(by: nil))
    }
}
