import CElf
import Glibc
import Synchronization

/// Where symbol files are searched. A file is used only if its build id is the module's.
public struct SymbolSearch: Sendable {
    /// Directories to search first. In each: `.build-id/xx/yyyy.debug`, the module's file name with and without `.debug`, and
    /// then any file of the module's build in it or its subdirectories, whatever its name. A path of a file is used as a symbol
    /// file itself.
    public var directories: [String]
    /// Where a distribution keeps them: `.build-id/xx/yyyy.debug`, and a module's own path below.
    public var systemDirectories: [String]
    /// Queried last. Nil by default: no network.
    public var server: DebugInfoServer?
    private let folders = SymbolFolders()

    /// Only the system's directories by default.
    public init(
        directories: [String] = [],
        systemDirectories: [String] = ["/usr/lib/debug"],
        server: DebugInfoServer? = nil
    ) {
        (self.directories, self.systemDirectories, self.server) = (directories, systemDirectories, server)
    }
}

/// A module whose symbols are needed.
struct SoughtModule {
    /// The kernel's path.
    var path: String
    var buildID: String?
    /// Where its own file may be.
    var candidates: [String]
    /// The bytes with which its own file must start, for a module of this process.
    var firstPage: [UInt8]?

    /// Whether the build id is valid: from a report it may be any text, and it becomes part of paths.
    var isSearchable: Bool {
        guard let buildID, (8...128).contains(buildID.utf8.count) else { return false }
        return buildID.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
    }
    var fileName: String { String(path.split(separator: "/").last ?? "") }
    var folder: String { String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)]) }
}

extension SymbolSearch {
    /// The module's own file, if it is available.
    func module(
        _ sought: SoughtModule,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> ELFFile? {
        let beside = directories.map { "\($0)/\(sought.fileName)" }
        for path in sought.candidates + (sought.firstPage == nil ? beside : []) {
            if let file = try accepted(path, sought, allowance, &problems) { return file }
        }
        return nil
    }

    /// A file with the module's lines, or at least its functions.
    func symbolFile(
        for sought: SoughtModule,
        _ module: ELFFile?,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> ELFFile? {
        var seen: Set<String> = [module?.image.path ?? ""]
        let named = paths(for: sought)
        if let file = try symbolFile(among: named, sought, &seen, allowance, &problems) { return file }
        // Takes longer: every file of the directories is opened once.
        let others = try folders.files(of: sought, in: directories, allowance)
        if let file = try symbolFile(among: others, sought, &seen, allowance, &problems) { return file }
        if let link = try module?.debugLink(allowance) {
            for path in paths(of: link, for: sought) where seen.insert(path).inserted {
                if let file = try accepted(path, by: link, sought, allowance, &problems) { return file }
            }
        }
        if let file = try download(sought, allowance, &problems) { return file }
        problems += folders.cutShort(of: directories).map { SymbolProblem(.tooManyFiles, path: $0) }
        return nil
    }

    /// The first file of the module's build that has more than the module itself.
    ///
    /// - Parameter seen: The paths that were tried, which are not tried again.
    private func symbolFile(
        among paths: [String],
        _ sought: SoughtModule,
        _ seen: inout Set<String>,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> ELFFile? {
        var sought = sought
        sought.firstPage = nil
        for path in paths where seen.insert(path).inserted {
            guard let file = try accepted(path, sought, allowance, &problems), file.isSymbolFile else { continue }
            // Other files of its name that are of another build do not matter then.
            problems.removeAll { $0.code == .otherBuild }
            return file
        }
        return nil
    }

    private func paths(for sought: SoughtModule) -> [String] {
        var paths: [String] = []
        for directory in directories {
            if let id = sought.buildID, sought.isSearchable { paths.append(directory + Self.path(ofBuildID: id)) }
            paths += ["\(directory)/\(sought.fileName).debug", "\(directory)/\(sought.fileName)", directory]
        }
        guard let id = sought.buildID, sought.isSearchable else { return sought.buildID == nil ? [] : paths }
        return paths + systemDirectories.map { $0 + Self.path(ofBuildID: id) }
    }

    private static func path(ofBuildID id: String) -> String { "/.build-id/\(id.prefix(2))/\(id.dropFirst(2)).debug" }

    private func paths(of link: DebugLink, for sought: SoughtModule) -> [String] {
        let folders = [sought.folder, sought.folder + "/.debug"]
        let others = directories + systemDirectories.map { $0 + sought.folder }
        return (folders + others).map { "\($0)/\(link.name)" }
    }

    /// Nil without a problem if there is no file, and with a problem if it is the wrong one.
    ///
    /// - Parameter link: The link in the module that names the file, if one does.
    private func accepted(
        _ path: String,
        by link: DebugLink? = nil,
        _ sought: SoughtModule,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> ELFFile? {
        do throws(SymbolProblem) {
            let file = try ELFFile(path: path, allowance)
            if let link { try sought.check(file, by: link, allowance) } else { try sought.check(file, allowance) }
            return file
        } catch {
            if error.isOfBudget { throw error }
            // A directory of symbol files is not a symbol file, and a given file may belong to another module.
            let isGiven =
                link == nil && directories.contains(path) && !sought.candidates.contains(path)
                && [.notAFile, .otherBuild, .noBuildID].contains(error.code)
            if error.code != .missingFile, !isGiven { problems.append(error) }
            return nil
        }
    }

    private func download(
        _ sought: SoughtModule,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> ELFFile? {
        guard let server, let id = sought.buildID, sought.isSearchable else { return nil }
        do throws(SymbolProblem) {
            let path = try server.symbolFile(buildID: id, within: allowance.timeLeft)
            let module = SoughtModule(path: sought.path, buildID: id, candidates: [])
            return try accepted(path, module, allowance, &problems)
        } catch {
            problems.append(SymbolProblem(error.code, path: sought.path, detail: error.detail))
            return nil
        }
    }
}

extension SoughtModule {
    /// Throws unless the file is of the build that ran.
    func check(_ file: ELFFile, _ allowance: Allowance) throws(SymbolProblem) {
        if let firstPage {
            let page = try file.image.bytes(0..<firstPage.count, allowance)
            // Memory after the end of a short file reads as zeros.
            guard firstPage.starts(with: page), firstPage[page.count...].allSatisfy({ $0 == 0 }) else {
                throw SymbolProblem(.otherBuild, path: file.image.path)
            }
        }
        guard buildID == file.buildID else { throw SymbolProblem(.otherBuild, path: file.image.path) }
        guard buildID != nil || firstPage != nil else { throw SymbolProblem(.noBuildID, path: file.image.path) }
    }

    /// Throws unless it is the file that the module's link names.
    func check(_ file: ELFFile, by link: DebugLink, _ allowance: Allowance) throws(SymbolProblem) {
        guard buildID == file.buildID else { throw SymbolProblem(.otherBuild, path: file.image.path) }
        guard try file.image.checksum(allowance) == link.checksum else {
            throw SymbolProblem(.checksum, path: file.image.path)
        }
    }
}

extension ELFFile {
    /// Whether it has more symbols than a stripped module.
    fileprivate var isSymbolFile: Bool {
        hasDebugInformation || section(".symtab").map { !$0.range.isEmpty } == true
    }
}

/// The contents of directories of symbol files, by build id: each directory is scanned once, when a module was not found there
/// by its name.
final class SymbolFolders: Sendable {
    private struct Folder {
        /// Paths by build id, those in higher directories first.
        var files: [String: [String]] = [:]
        /// Whether it has more than was read.
        var isCutShort = false
    }

    private let found = Mutex<[String: Folder]>([:])

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
            files += known?.files[id] ?? []
        }
        return files
    }

    /// Those of the directories of which only a part was searched.
    func cutShort(of directories: [String]) -> [String] {
        found.withLock { found in directories.filter { found[$0]?.isCutShort == true } }
    }

    private static func index(_ directory: String, _ allowance: Allowance) throws(SymbolProblem) -> Folder {
        var found = Folder()
        var folders = [(path: directory, depth: 0)]
        var left = entryLimit
        while left > 0, !folders.isEmpty {
            let folder = folders.removeFirst()
            // Sorted, so that the same file is used each time.
            let names = directoryNames(folder.path, limit: left)
            // A folder that fills the limit exactly may have more.
            if names.count >= left { found.isCutShort = true }
            for name in names.sorted() {
                try allowance.checkTime()
                left -= 1
                let path = "\(folder.path)/\(name)"
                if isFolder(path) {
                    guard folder.depth < depthLimit else {
                        found.isCutShort = true
                        continue
                    }
                    folders.append((path, folder.depth + 1))
                } else if let id = try buildID(of: path, allowance) {
                    found.files[id, default: []].append(path)
                }
            }
        }
        if !folders.isEmpty { found.isCutShort = true }
        return found
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
