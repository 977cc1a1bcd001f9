import Foundation
import Testing

@Suite("Documentation")
struct DocumentationTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// Programs that the documents quote; each is compiled.
    private static let programs = [
        "Tests/Fixtures/doc-examples/Main.swift", "Tests/Embedding/Sources/Shop/Server.swift",
        "Tests/Embedding/Tests/ShopTests/CheckoutTests.swift", "Tests/Fixtures/service-host/Example.swift",
        "Tests/Embedding/Tests/ShopXCTests/CheckoutCaseTests.swift",
    ]

    private static let documents: [String] =
        ["README.md"]
        + (FileManager.default.enumerator(atPath: root.appending(path: "Sources").path)?
            .compactMap { $0 as? String }.filter { $0.hasSuffix(".md") }.map { "Sources/\($0)" } ?? [])

    @Test("Code in a document is part of a program that is compiled", arguments: documents)
    func codeCompiles(_ document: String) throws {
        let programs = try Self.programs.map { Self.flat(try Self.text($0)) }
        for block in Self.blocks(of: "swift", in: try Self.text(document)) {
            // A comment at the end of a line is only for the document's reader.
            let code = Self.flat(block.replacing(#/ +// .*/#, with: ""))
            #expect(programs.contains { $0.contains(code) }, "\(document) has code that no program has:\n\(block)")
        }
    }

    @Test("Links to files of the repository lead to existing files", arguments: documents)
    func linksLead(_ document: String) throws {
        let folder = Self.root.appending(path: document).deletingLastPathComponent()
        for link in try Self.text(document).matches(of: /\]\(([^)#:]+)\)/) {
            let target = folder.appending(path: String(link.1)).standardizedFileURL.path
            #expect(FileManager.default.fileExists(atPath: target), "\(document) links to \(link.1)")
        }
    }

    @Test("The article on the life of a stall names files and functions that exist, each file once")
    func lifeOfAStall() throws {
        let article = try Self.text("Sources/StallMonitor/StallMonitor.docc/LifeOfAStall.md")
        let rows = article.split(separator: "\n").compactMap { $0.firstMatch(of: /^\|(.+)\| `(.+\.swift)` \|$/) }
        #expect(rows.count > 20)
        let steps = rows.count { $0.1.firstMatch(of: #/^ \d+\. /#) != nil }
        #expect((1...20).contains(steps), "A stall passes through \(steps) files")
        #expect(Set(rows.map(\.2)).count == rows.count)
        for row in rows {
            let code = try? Self.text("Sources/\(row.2)")
            #expect(code != nil, "There is no \(row.2)")
            for name in row.1.matches(of: /\*([A-Za-z]+)/).map(\.1) {
                let declarations = name == "init" ? ["init"] : ["func \(name)", "struct \(name)"]
                #expect(declarations.contains { code?.contains($0) == true }, "\(row.2) has no \(name)")
            }
        }
    }

    @Test("The map of the code names every target, and files that exist")
    func map() throws {
        let map = try Self.text("Sources/README.md")
        let folders = try FileManager.default.contentsOfDirectory(atPath: Self.root.appending(path: "Sources").path)
        let targets = map.matches(of: #/\*\*([A-Za-z-]+)\*\*/#).map { String($0.1) }
        #expect(Set(targets) == Set(folders.filter { !$0.contains(".") }))
        for row in map.split(separator: "\n") {
            let target = row.firstMatch(of: #/^\| \*\*([A-Za-z-]+)\*\*/#).map { "\($0.1)/" }
            for match in row.matches(of: #/`([A-Za-z/+_-]+\.(?:swift|c|md))`/#) {
                // A file without a folder stands in that of its row, such as `Collector.swift`.
                guard target != nil || match.1.contains("/") else { continue }
                let path = "\(target ?? "")\(match.1)"
                #expect((try? Self.text("Sources/\(path)")) != nil, "There is no \(path)")
            }
        }
    }

    private static func text(_ path: String) throws -> String {
        try String(contentsOf: root.appending(path: path), encoding: .utf8)
    }

    private static func blocks(of language: String, in text: String) -> [String] {
        text.components(separatedBy: "```\(language)\n").dropFirst().map { $0.components(separatedBy: "```")[0] }
    }

    /// Without indentation and empty lines.
    private static func flat(_ code: String) -> String {
        code.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
            .joined(separator: "\n")
    }
}
