import Glibc

// Which program a process runs.

extension ProcessIdentity {
    /// The path of a process's program. Nil if it cannot be read. Any thread; some system calls.
    ///
    /// Without the mark of a deleted file: after an update of the program, its processes still have its name, and its functions are their own.
    package static func program(of pid: Int32) -> String? {
        let directory = directory(of: pid)
        guard let file = readProcLink(directory + "/exe") else { return nil }
        let path = loadedProgram(of: pid, in: directory, by: file) ?? file
        // The file's name may end in the same words.
        let isMarked = unsafe path.hasSuffix(deletedFileMark) && access("\(directory)/root\(path)", F_OK) != 0
        return isMarked ? String(path.dropLast(deletedFileMark.count)) : path
    }

    /// The path, with its mark, of a program that was started as an argument of the dynamic loader (ld.so(8)): `exe` leads to the loader then, of
    /// which no function of the program is a part. Nil for other processes, and until the loader has loaded the program.
    ///
    /// - Parameter loader: Where `exe` in the process's directory leads to.
    package static func loadedProgram(of pid: Int32, in directory: String, by loader: String) -> String? {
        guard fileName(ofPath: loader).hasPrefix("ld-"),
            let address = pid == getpid() ? addressInOwnProgram() : addressInProgram(in: directory),
            let maps = readFile(directory + "/maps", limit: 16 << 20, isWhole: false)
        else { return nil }
        let path = mappedFile(at: address, in: maps)
        return path == loader ? nil : path
    }

    /// From the loader itself: this process may not be permitted to read its own memory by `/proc` (PR_SET_DUMPABLE).
    private static func addressInOwnProgram() -> UInt? {
        guard let program = unsafe dlopen(nil, RTLD_LAZY | RTLD_NOLOAD) else { return nil }
        defer { unsafe _ = dlclose(program) }
        // The third word of `struct link_map` (dlinfo(3)) is the address of its dynamic section.
        return unsafe program.load(fromByteOffset: 2 * MemoryLayout<UInt>.size, as: UInt.self)
    }

    /// From the first words of the first thread's stack.
    private static func addressInProgram(in directory: String) -> UInt? {
        // Field 28 is the address of the first one.
        guard let fields = readProcFile(directory + "/stat").map(statFields), fields.count > 25,
            let start = UInt(fields[25]), start != 0
        else { return nil }
        let file = unsafe open(directory + "/mem", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        // As many as there are: mostly some hundred.
        var words = [UInt](repeating: 0, count: (1 << 20) / MemoryLayout<UInt>.size)
        let size = unsafe words.withUnsafeMutableBytes { unsafe pread(file, $0.baseAddress, $0.count, off_t(start)) }
        return headers(in: words.prefix(max(0, size) / MemoryLayout<UInt>.size))
    }

    /// The address of the program's headers in the auxiliary vector (getauxval(3)), into which the loader writes it.
    ///
    /// - Parameter words: The stack as execve(2) leaves it: the arguments, the variables, and the vector, whose entries are pairs of a kind and a
    ///   value. The kernel writes these three in a row. A program may have removed variables since, so the vector is searched, not counted to.
    static func headers(in words: ArraySlice<UInt>) -> UInt? {
        let sizeOfHeader: UInt = 56
        let place = words.indices.dropLast(4).first { index in
            words[index] == UInt(AT_PHDR) && words[index + 2] == UInt(AT_PHENT) && words[index + 3] == sizeOfHeader
                && words[index + 4] == UInt(AT_PHNUM)
        }
        return place.map { words[$0 + 1] }
    }

    /// The path in a text like `/proc/PID/maps` (proc_pid_maps(5)): addresses, four words, and the path, which may contain blanks.
    static func mappedFile(at address: UInt, in maps: String) -> String? {
        for line in maps.split(separator: "\n") {
            let words = line.split(separator: " ", maxSplits: 5)
            let bounds = words.first?.split(separator: "-").compactMap { UInt($0, radix: 16) } ?? []
            guard bounds.count == 2, bounds[0] <= address, address < bounds[1] else { continue }
            let path = words.count == 6 ? words[5].drop { $0 == " " } : ""
            return path.hasPrefix("/") ? String(path) : nil
        }
        return nil
    }
}
