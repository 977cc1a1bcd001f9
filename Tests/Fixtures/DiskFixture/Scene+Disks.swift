import CDiskFaults
import Glibc
import RunLoopKit
import StallMonitor
import StallReading
import StallReports

extension Scene {
    /// A disk that fails for a while.
    func failing(_ fail: (Bool) -> Void) {
        let monitor = start()
        stall()
        settle()
        print("missing before: \(missing)")
        fail(true)
        stall(3)
        print("missing meanwhile: \(missing >= 3 ? "all" : "\(missing)"), drafts: \(drafts)")
        print(events.troubles)
        fail(false)
        // No other event occurs: the monitor retries by itself.
        events.wait { $0.troubles.count >= 2 }
        print(events.troubles)
        print("missing after: \(missing), drafts: \(drafts)")
        monitor.stop()
        let run = run
        print(
            "lost: \(run?.lostWrites ?? -1), waiting: \(run?.writing?.waiting ?? -1), state: \(run?.state.rawValue ?? "")"
        )
    }

    func onDisk(_ options: String, _ fail: (Bool) -> Void) {
        let error = unsafe disk_mount(disk, options)
        guard error == 0 else { return print("no mount: errno \(error)") }
        failing(fail)
    }

    func fill(_ isFull: Bool) {
        let path = disk + "/filler"
        guard isFull else { return _ = unsafe unlink(path) }
        let file = unsafe open(path, O_WRONLY | O_CREAT, 0o600)
        let block = [UInt8](repeating: 1, count: 4096)
        while unsafe write(file, block, block.count) == block.count {}
        close(file)
    }

    func useUpInodes(_ areUsedUp: Bool) {
        for number in 0..<100 {
            let path = disk + "/inode\(number)"
            guard areUsedUp else {
                _ = unsafe unlink(path)
                continue
            }
            close(unsafe open(path, O_WRONLY | O_CREAT, 0o600))
        }
    }

    func remount(readOnly: Bool) {
        var error: Int32 = 0
        // The kernel rejects it while a file is open for writing, and a run record can be written at any time.
        events.wait { _ in
            error = unsafe disk_remount(disk, readOnly)
            return error != EBUSY
        }
        if error != 0 { print("no remount: errno \(error)") }
    }

    /// A directory of another user, which is changed to ours later. A shell that has kept root's rights changes it: with them, this process's
    /// other threads could write meanwhile.
    func forbidden() {
        unsafe chmod(root, 0o711)
        unsafe chmod(disk, 0o711)
        unsafe mkdir(reports, 0o700)
        _ = unsafe chown(reports, 65534, 65534)
        guard let shell = unsafe popen("while read owner; do chown $owner '\(reports)'; done", "w") else {
            return print("no shell: errno \(errno)")
        }
        seteuid(65534)
        failing { isForbidden in
            let owner: uid_t = isForbidden ? 0 : 65534
            unsafe fputs("\(owner)\n", shell)
            unsafe fflush(shell)
            events.wait { _ in
                var status = stat()
                return unsafe stat(reports, &status) == 0 && status.st_uid == owner
            }
        }
        _ = unsafe pclose(shell)
    }

    /// A directory that is removed is created again.
    func removed() {
        let monitor = start()
        stall()
        settle()
        remove(reports)
        let before = events.ended.count
        stall()
        monitor.stop()
        let told = Set(events.ended.dropFirst(before).map(\.id))
        let written = (try? ReportReader(path: reports).contents())?.reports ?? []
        print(events.troubles, told.isSubset(of: Set(written.map(\.id))))
    }

    /// Renames it first, so that no file is created in it while it is emptied.
    private func remove(_ directory: String) {
        let doomed = root + "/doomed"
        var failures = unsafe rename(directory, doomed) == 0 ? 0 : 1
        for name in names(in: doomed) where unsafe unlink(doomed + "/" + name) != 0 { failures += 1 }
        if unsafe rmdir(doomed) != 0 || failures > 0 { print("not removed: errno \(errno), \(names(in: doomed))") }
    }

    /// A disk that takes no changes of the live record for a while.
    func refusingRecord() {
        let monitor = start()
        stall()
        disk_fail(disk_record, EIO)
        stall(3)
        print("lives: \(holdsRecord)")
        disk_fail(disk_record, 0)
        stall()
        print("lives: \(holdsRecord)")
        monitor.stop()
        print(names(in: reports).filter { $0.hasPrefix("live-") })
    }

    /// A directory whose list cannot be read.
    func refusingList() {
        unsafe mkdir(reports, 0o700)
        disk_fail(disk_list, EIO)
        do throws(ReportError) {
            print("names: \(try ReportReader(path: reports).names().count)")
        } catch {
            print(error.code.name)
        }
    }

    /// Whether the live record's lock says that this process lives.
    private var holdsRecord: Bool {
        (try? ReportReader(path: reports).liveProcesses())?.processes.first?.holdsLock == true
    }

    /// A disk that does not respond for a while.
    func hanging() {
        let monitor = start()
        stall()
        disk_hang(true)
        // Reported although nothing reaches the disk.
        stall(3)
        print(events.troubles, missing >= 3)
        disk_hang(false)
        events.wait { $0.troubles.count >= 2 }
        stall()
        print(events.troubles, "missing: \(missing)")
        monitor.stop()
        print("lost: \(run?.lostWrites ?? -1), longest: \((run?.writing?.longestNs ?? 0) >= 2_000_000_000)")
    }

    /// A disk that is slow, and a process that is stopped meanwhile for longer than a write may take.
    func stopped() {
        let monitor = start()
        stall()
        settle()
        let before = events.ended.count
        disk_hang(true)
        while !disk_hangs() {
            _ = try? worker.loop.performAndWait { usleep(150_000) }
            for _ in 0..<500 where !disk_hangs() { usleep(10_000) }
        }
        _ = unsafe system("kill -STOP $PPID; sleep 4; kill -CONT $PPID")
        // Whoever has waited for long enough gives up before the disk answers.
        usleep(300_000)
        disk_hang(false)
        events.wait { $0.ended.count > before }
        settle()
        print(events.troubles, "missing: \(missing)")
        monitor.stop()
    }

    /// A disk that never responds again.
    func stopping() {
        let monitor = start()
        stall()
        disk_hang(true)
        stall(2)
        monitor.stop()
        print(events.troubles)
        // The writer hangs forever; nothing else does.
        fflush(nil)
        _exit(0)
    }

    /// Which thread accesses the disk.
    func touches() {
        unsafe disk_watch("stall-watchdog")
        let monitor = start()
        stall(2)
        _ = try? worker.loop.performAndWait {
            var time = timespec(), end = timespec()
            unsafe clock_gettime(CLOCK_MONOTONIC, &end)
            repeat { unsafe clock_gettime(CLOCK_MONOTONIC, &time) } while time.tv_sec < end.tv_sec + 2
        }
        events.wait { $0.ended.count >= 3 }
        print("watchdog: \(unsafe disk_touches("stall-watchdog")) \(unsafe String(cString: disk_last_path()))")
        unsafe disk_watch("stall-writer")
        stall()
        monitor.stop()
        print("writer: \(unsafe disk_touches("stall-writer") > 0)")
    }
}
