import CElf
import Glibc
import Synchronization

/// The contents of directories of symbol files, by build id: each directory is scanned once, when a module was not found there
/// by its name.
final class SymbolFolders: Sendable {
    private let found = Mutex<[String: [String: [String]]]>([:])

    /// The number of entries read in one directory including its subdirectories, and the greatest depth.
    private static let entryLimit = 20_000
    private static let depthLimit = 6

    /// The files of the module's build. Empty without a build id.
    func files(
        of sought: SoughtModule,
        in directories: [String],
        _ allowance: Allowance
    ) throws(SymbolProblem) -> [String] {
        guard let id = sought.buildID, sought.isSearchable else { return [] }
        var files: [String] = []
        for directory in directories {
            var known = found.withLock { $0[directory] }
            if known == nil { known = try Self.index(directory, allowance) }
            found.withLock { $0[directory] = known }
            files += known?[id] ?? []
        }
        return files
    }

    /// - Returns: Paths by build id, those in higher directories first.
    private static func index(
        _ directory: String,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> [String: [String]] {
        var files: [String: [String]] = [:]
        var folders = [(path: directory, depth: 0)]
        var left = entryLimit
        while left > 0, !folders.isEmpty {
            let folder = folders.removeFirst()
            // Sorted, so that the same file is used each time.
            for name in directoryNames(folder.path, limit: left).sorted() {
                try allowance.checkTime()
                left -= 1
                let path = "\(folder.path)/\(name)"
                if isFolder(path) {
                    if folder.depth < depthLimit { folders.append((path, folder.depth + 1)) }
                } else if let id = try buildID(of: path, allowance) {
                    files[id, default: []].append(path)
                }
            }
        }
        return files
    }

    /// Does not follow links: they could form a cycle.
    private static func isFolder(_ path: String) -> Bool {
        var status = stat()
        return unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    /// Nil if the file is not a program, library or symbol file, or cannot be read.
    private static func buildID(of path: String, _ allowance: Allowance) throws(SymbolProblem) -> String? {
        do throws(SymbolProblem) {
            let image = try FileImage(path: path, allowance)
            guard let header = try image.value(Elf64_Ehdr.self, at: 0, allowance), header.e_ident.0 == 0x7f,
                header.e_type == UInt16(ET_EXEC) || header.e_type == UInt16(ET_DYN)
            else { return nil }
            return try ELFFile(image, allowance).buildID
        } catch {
            if error.isOfBudget { throw error }
            return nil
        }
    }
}
