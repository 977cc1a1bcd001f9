/// The meaning of a system call's arguments, for the calls that can make a thread wait. Keyed by name, so it is the same on every
/// architecture.
struct CallSignature: Hashable, Sendable {
    /// In the order of the registers. Nil for an argument of no interest, such as a buffer's address.
    let parameters: [Parameter?]

    struct Parameter: Hashable, Sendable {
        let name: String
        let form: Form
    }

    /// How a register is read.
    enum Form: Hashable, Sendable {
        case descriptor
        /// A directory's descriptor, or AT_FDCWD.
        case directory
        case signed
        case unsigned
        case address
        case milliseconds
        /// Pointers, which are followed if they can be read.
        case timespec
        case timeval
        case path
        case pollDescriptors
        case descriptorSet
        case socketAddress
        /// Bits or numbers with names.
        case names(FlagNames)
    }

    /// The signature of a call. Nil if it is not in the table.
    static func of(_ call: String) -> CallSignature? { table[call] }

    private static let table: [String: CallSignature] = {
        let lines = text.description.split(separator: "\n").map { $0.split(separator: " ") }
        return Dictionary(
            lines.compactMap { words in words.first.map { (String($0), CallSignature(words.dropFirst())) } }
        ) { first, _ in first }
    }()

    /// How many calls are known.
    static var count: Int { table.count }

    /// - Parameter words: `name:form`, or `-`. The form may be left out if the name determines it.
    private init(_ words: ArraySlice<Substring>) {
        parameters = words.map { word in
            guard word != "-" else { return nil }
            let parts = word.split(separator: ":").map(String.init)
            return Parameter(name: parts[0], form: Self.form(parts[parts.count - 1]))
        }
    }

    private static func form(_ word: String) -> Form {
        switch word {
        case "fd", "epfd": .descriptor
        case "dirfd": .directory
        case "pid", "int": .signed
        case "address": .address
        case "ms": .milliseconds
        case "timespec": .timespec
        case "timeval": .timeval
        case "path": .path
        case "pollfds": .pollDescriptors
        case "fdset": .descriptorSet
        case "sockaddr": .socketAddress
        default: FlagNames.named[word].map { .names($0) } ?? .unsigned
        }
    }
}

extension CallSignature {
    /// From the calls' manual pages, section 2. `-` means an argument that is left out.
    static let text: StaticString = """
        read fd - count
        write fd - count
        readv fd - iovcnt
        writev fd - iovcnt
        pread64 fd - count offset
        pwrite64 fd - count offset
        preadv fd - iovcnt offset
        pwritev fd - iovcnt offset
        preadv2 fd - iovcnt offset - flags:rwf
        pwritev2 fd - iovcnt offset - flags:rwf
        sendfile out_fd:fd in_fd:fd - count
        splice fd_in:fd - fd_out:fd - len flags:splice
        tee fd_in:fd fd_out:fd len flags:splice
        vmsplice fd - nr_segs flags:splice
        copy_file_range fd_in:fd - fd_out:fd - len
        fsync fd
        fdatasync fd
        syncfs fd
        sync
        sync_file_range fd offset nbytes
        msync addr:address length flags:msync
        fallocate fd mode offset len
        ftruncate fd length
        truncate path length
        flock fd operation:flock
        fcntl fd cmd:fcntl
        ioctl fd request:address
        open path flags:open
        openat dirfd path flags:open
        openat2 dirfd path
        creat path
        close fd
        stat path
        lstat path
        fstat fd
        newfstatat dirfd path
        statx dirfd path
        statfs path
        fstatfs fd
        access path
        faccessat dirfd path
        faccessat2 dirfd path
        readlink path
        readlinkat dirfd path
        getdents fd - count
        getdents64 fd - count
        mkdir path
        mkdirat dirfd path
        rmdir path
        unlink path
        unlinkat dirfd path
        rename path newpath:path
        renameat dirfd path newdirfd:dirfd newpath:path
        renameat2 dirfd path newdirfd:dirfd newpath:path
        link path newpath:path
        symlink target:path path
        chdir path
        chmod path
        chown path
        fchmod fd
        fchown fd
        fadvise64 fd offset len
        readahead fd offset count
        mount source:path target:path
        umount2 target:path
        execve path
        getxattr path name:path
        setxattr path name:path
        connect fd addr:sockaddr addrlen
        accept fd
        accept4 fd - - flags:sock
        sendto fd - len flags:msg addr:sockaddr addrlen
        recvfrom fd - len flags:msg
        sendmsg fd - flags:msg
        recvmsg fd - flags:msg
        sendmmsg fd - vlen flags:msg
        recvmmsg fd - vlen flags:msg timeout:timespec
        shutdown fd
        poll fds:pollfds nfds timeout:ms
        ppoll fds:pollfds nfds timeout:timespec
        select nfds readfds:fdset writefds:fdset - timeout:timeval
        pselect6 nfds readfds:fdset writefds:fdset - timeout:timespec
        epoll_wait epfd - maxevents timeout:ms
        epoll_pwait epfd - maxevents timeout:ms
        epoll_pwait2 epfd - maxevents timeout:timespec
        epoll_ctl epfd op:epoll_ctl fd
        nanosleep request:timespec
        clock_nanosleep clock:clock flags:timer request:timespec
        pause
        rt_sigsuspend
        rt_sigtimedwait - - timeout:timespec
        wait4 pid - options:wait
        waitid which:idtype id:int - options:wait
        vfork
        futex uaddr:address op:futex val
        semop semid - nsops
        semtimedop semid - nsops timeout:timespec
        msgsnd msqid - msgsz
        msgrcv msqid - msgsz
        mq_timedsend fd - len prio timeout:timespec
        mq_timedreceive fd - len - timeout:timespec
        io_getevents - min_nr nr - timeout:timespec
        io_uring_enter fd to_submit min_complete flags:uring
        mmap addr:address length prot:prot flags:mmap fd offset
        munmap addr:address length
        mprotect addr:address length prot:prot
        mremap addr:address old_size new_size
        madvise addr:address length advice
        mlock addr:address length
        mlockall
        getrandom - count flags:getrandom
        ptrace request pid
        process_vm_readv pid
        setns fd
        finit_module fd
        """
}
