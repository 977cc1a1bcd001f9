import Glibc
import LoopTestSupport
import Testing

/// Checks that README.md in this folder and the tests agree.
struct ForeignTableTests {
    @Test("Every case of the table names an existing test that stands for it, or says why there is none")
    func rows() throws {
        let rows = try Self.rows()
        #expect(rows.count > 150)
        #expect(Set(rows.map(\.name)).count == rows.count, "a case stands in the table twice")
        let tests = try Self.tests()
        for row in rows {
            if let test = row.test {
                #expect(tests[test]?.contains(row.name) == true, "\(row.name): \(test) does not stand for it")
            } else {
                #expect(row.remark.count > 10, "\(row.name): no test, and no reason")
            }
        }
    }

    @Test("Every case that a test stands for is in the table")
    func traits() throws {
        let names = Set(try Self.rows().filter { $0.test != nil }.map(\.name))
        for (test, cases) in try Self.tests() {
            for name in cases { #expect(names.contains(name), "\(test) stands for \(name), which is not in the table") }
        }
    }

    @Test("The counts at the top of the table are those of its rows")
    func counts() throws {
        let rows = try Self.rows()
        let (all, tested) = (rows.count, rows.count { $0.test != nil })
        let text = try Self.text(of: "README.md")
        #expect(text.contains("| all | \(all) | \(tested) | \(all - tested) |"), "\(all) \(tested) \(all - tested)")
    }

    private struct Row {
        let name: String
        let test: String?
        let remark: String
    }

    /// A row with a case begins with its name in backticks; a test's name in backticks may follow.
    private static func rows() throws -> [Row] {
        try text(of: "README.md").split(separator: "\n").compactMap { line in
            // Checked first, here and below, because matching is slow in a debug build.
            guard line.hasPrefix("| `"),
                let match = line.wholeMatch(of: /\| `([^`]+)` \| (?:`([A-Za-z]+\.[A-Za-z0-9]+)`)?(.*) \|/)
            else {
                return nil
            }
            return Row(name: String(match.1), test: match.2.map(String.init), remark: String(match.3))
        }
    }

    /// The cases of each test, by `Suite.function`.
    private static func tests() throws -> [String: Set<String>] {
        var tests: [String: Set<String>] = [:]
        for file in try files() where file.hasSuffix("Tests.swift") && file != "ForeignTableTests.swift" {
            var (suite, cases, isInTraits) = ("", Set<String>(), false)
            for line in try text(of: file).split(separator: "\n") {
                if line.hasPrefix("struct "), let match = line.prefixMatch(of: /struct ([A-Za-z]+)/) {
                    suite = String(match.1)
                }
                if line.hasPrefix("    @Test(") { (cases, isInTraits) = ([], true) }
                guard isInTraits else { continue }
                for match in line.contains("\"") ? line.matches(of: /"([A-Za-z_]+[. ][A-Za-z0-9_.]+)"/) : [] {
                    cases.insert(String(match.1))
                }
                guard line.hasPrefix("    func "), let match = line.prefixMatch(of: #/    func ([A-Za-z0-9]+)/#) else {
                    continue
                }
                tests["\(suite).\(match.1)"] = cases
                isInTraits = false
            }
        }
        return tests
    }

    private static let folder = #filePath.split(separator: "/", omittingEmptySubsequences: false).dropLast()
        .joined(separator: "/")

    private static func files() throws -> [String] {
        guard let directory = unsafe opendir(folder) else { throw Fixture.Failure(reason: "no folder \(folder)") }
        defer { unsafe closedir(directory) }
        var files: [String] = []
        while let entry = unsafe readdir(directory) {
            unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                files.append(unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self))
            }
        }
        return files
    }

    private static func text(of file: String) throws -> String {
        guard let stream = unsafe fopen("\(folder)/\(file)", "r") else { throw Fixture.Failure(reason: "no \(file)") }
        defer { unsafe fclose(stream) }
        var bytes: [UInt8] = []
        var byte = unsafe getc(stream)
        while byte != EOF {
            bytes.append(UInt8(truncatingIfNeeded: byte))
            byte = unsafe getc(stream)
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
