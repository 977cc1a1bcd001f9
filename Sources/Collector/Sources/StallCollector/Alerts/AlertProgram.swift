import Foundation
import Glibc
import StallReports

/// A program that is told of alerts, or sends a mail. It gets the message on its standard input.
///
/// Not by Foundation's `Process`, which waits for all that a program has started, lets it inherit the signals that the threads of Swift's tasks
/// block, SIGTERM among them, and keeps two descriptors open for each program that cannot be started.
struct AlertProgram {
    /// The path, and the arguments.
    let words: [String]

    /// - Throws: If it does not start, exits with a code other than 0, or takes too long. In the last case it is killed.
    func run(_ input: Data, within limit: Duration) async throws {
        let file = try Self.file(with: input)
        defer { try? file.close() }
        let identifier = try start(input: file.fileDescriptor)
        let end = ContinuousClock.now + limit
        while true {
            if let status = Self.status(of: identifier) {
                if status == 0 { return }
                throw AlertReceiver.Failure(description: "it ended with \(status)")
            }
            guard ContinuousClock.now < end else {
                Self.stop(identifier)
                throw AlertReceiver.Failure(description: "it took more than \(limit)")
            }
            do {
                try await Task.sleep(for: .milliseconds(20))
            } catch {
                Self.stop(identifier)
                throw error
            }
        }
    }

    /// Starts it in a process group of its own, with no signal blocked or ignored, and without our descriptors.
    private func start(input: Int32) throws -> pid_t {
        var attributes = posix_spawnattr_t()
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawnattr_init(&attributes)
        unsafe posix_spawn_file_actions_init(&actions)
        defer {
            unsafe posix_spawnattr_destroy(&attributes)
            unsafe posix_spawn_file_actions_destroy(&actions)
        }
        var (none, all) = (sigset_t(), sigset_t())
        unsafe sigemptyset(&none)
        unsafe sigfillset(&all)
        unsafe posix_spawnattr_setsigmask(&attributes, &none)
        unsafe posix_spawnattr_setsigdefault(&attributes, &all)
        let flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
        unsafe posix_spawnattr_setflags(&attributes, Int16(flags))
        unsafe posix_spawn_file_actions_adddup2(&actions, input, 0)
        unsafe posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
        unsafe posix_spawn_file_actions_adddup2(&actions, 1, 2)
        // One that is closed meanwhile is no mistake.
        let descriptors = try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").compactMap { Int32($0) }
        for descriptor in descriptors where descriptor > 2 {
            unsafe posix_spawn_file_actions_addclose(&actions, descriptor)
        }
        var arguments = unsafe words.map { unsafe strdup($0) } + [nil]
        defer { unsafe arguments.forEach { unsafe free($0) } }
        var identifier = pid_t()
        let code = unsafe posix_spawn(&identifier, words[0], &actions, &attributes, &arguments, environ)
        guard code == 0 else {
            let reason = unsafe String(cString: strerror(code))
            throw AlertReceiver.Failure(description: "it cannot be started: \(reason)")
        }
        return identifier
    }

    /// Its exit code. Nil if it has not ended.
    private static func status(of identifier: pid_t) -> Int32? {
        var status: Int32 = 0
        switch unsafe waitpid(identifier, &status, WNOHANG) {
        case 0: return nil
        case identifier: break
        default: return 128
        }
        let signal = status & 0x7f
        return signal == 0 ? status >> 8 & 0xff : 128 + signal
    }

    /// Kills it with all that it has started. A script's command would otherwise go on without it, and another one with each attempt.
    private static func stop(_ identifier: pid_t) {
        kill(-identifier, SIGKILL)
        // It can take long to end, as one that waits for a file server does. No thread may wait for it.
        Task {
            var pause = Duration.milliseconds(10)
            while status(of: identifier) == nil {
                try? await Task.sleep(for: pause)
                pause = min(pause * 2, .seconds(10))
            }
        }
    }

    /// A file instead of a pipe: a program that does not read its input then blocks nothing. It has no name, so that no other user can
    /// open it, and nothing is left behind.
    private static func file(with input: Data) throws -> FileHandle {
        let directory = FileManager.default.temporaryDirectory.path
        let path = "\(directory)/stall-alert-\(ULID.make())"
        let descriptor = unsafe open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else {
            throw AlertReceiver.Failure(description: "no file can be created in \(directory)")
        }
        _ = unsafe unlink(path)
        let file = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        try file.write(contentsOf: input)
        try file.seek(toOffset: 0)
        return file
    }
}
