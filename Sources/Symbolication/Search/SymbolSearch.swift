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
        for isByName in [true, false] {
            let paths = isByName ? paths(for: sought) : try folders.files(of: sought, in: directories, allowance)
            for path in paths where seen.insert(path).inserted {
                var sought = sought
                sought.firstPage = nil
                guard let file = try accepted(path, sought, allowance, &problems), file.isSymbolFile else { continue }
                // Other files of its name that are of another build do not matter then.
                problems.removeAll { $0.code == .otherBuild }
                return file
            }
        }
        if let link = try module?.debugLink(allowance) {
            for path in paths(of: link, for: sought) where seen.insert(path).inserted {
                if let file = try accepted(path, link, sought, allowance, &problems) { return file }
            }
        }
        return try download(sought, allowance, &problems)
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
    private func accepted(
        _ path: String,
        _ sought: SoughtModule,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> ELFFile? {
        do throws(SymbolProblem) {
            let file = try ELFFile(path: path, allowance)
            try sought.check(file, allowance)
            return file
        } catch {
            if error.isOfBudget { throw error }
            // A directory of symbol files is not a symbol file, and a given file may belong to another module.
            let isGiven =
                directories.contains(path) && !sought.candidates.contains(path)
                && [.notAFile, .otherBuild, .noBuildID].contains(error.code)
            let isPassedOver = error.code == .missingFile || isGiven
            if !isPassedOver { problems.append(error) }
            return nil
        }
    }

    private func accepted(
        _ path: String,
        _ link: DebugLink,
        _ sought: SoughtModule,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> ELFFile? {
        do throws(SymbolProblem) {
            let file = try ELFFile(path: path, allowance)
            guard file.buildID == sought.buildID else { throw SymbolProblem(.otherBuild, path: path) }
            guard try file.image.checksum(allowance) == link.checksum else {
                throw SymbolProblem(.checksum, path: path)
            }
            return file
        } catch {
            if error.isOfBudget { throw error }
            if error.code != .missingFile { problems.append(error) }
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
            return try accepted(
                path,
                SoughtModule(path: sought.path, buildID: id, candidates: []),
                allowance,
                &problems
            )
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
}

extension ELFFile {
    /// Whether it has more symbols than a stripped module.
    fileprivate var isSymbolFile: Bool {
        hasDebugInformation || section(".symtab").map { !$0.range.isEmpty } == true
    }
}
