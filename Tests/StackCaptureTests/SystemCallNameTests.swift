import Foundation
import Testing

@testable import StackCapture

@Suite("System calls have the kernel's names")
struct SystemCallNameTests {
    private static let headerOfX86 = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
    private static let genericHeader = "/usr/include/asm-generic/unistd.h"

    @Test(
        "as the kernel's own header for x86-64 numbers them",
        .enabled(if: FileManager.default.isReadableFile(atPath: headerOfX86), "that header is not installed")
    )
    func numbersOfX86() throws { try compare(.x86, with: Self.headerOfX86) }

    @Test(
        "as the kernel's own header for newer architectures numbers them",
        .enabled(if: FileManager.default.isReadableFile(atPath: genericHeader), "that header is not installed")
    )
    func genericNumbers() throws { try compare(.aarch64, with: Self.genericHeader) }

    private func compare(_ numbering: SystemCallNumbering, with path: String) throws {
        let defined = Self.numbers(in: try String(contentsOfFile: path, encoding: .utf8))
        #expect(defined.count > 250)
        for (number, names) in defined {
            let name = SystemCall.name(of: number, in: numbering)
            #expect(name.map(names.contains) ?? false, "\(number) is \(names), not \(name ?? "nothing")")
        }
    }

    @Test("numbers that no architecture has assigned have no name")
    func unknown() {
        for numbering in [SystemCallNumbering.x86, .aarch64] {
            #expect(SystemCall.name(of: -1, in: numbering) == nil)
            #expect(SystemCall.name(of: 423, in: numbering) == nil)
            #expect(SystemCall.name(of: 100_000, in: numbering) == nil)
        }
        #expect(SystemCall.name(of: 250, in: .aarch64) == nil)
    }

    /// The definitions of a header. The generic header has several names for some numbers: for 32-bit machines, older ones, and
    /// aliases.
    private static func numbers(in text: String) -> [Int: Set<String>] {
        var numbers: [Int: Set<String>] = [:]
        var values: [Substring: Int] = [:]
        for line in text.split(separator: "\n") {
            let words = line.split(whereSeparator: \.isWhitespace)
            guard words.count >= 3, words[0] == "#define", let number = Int(words[2]) ?? values[words[2]] else {
                continue
            }
            values[words[1]] = number
            for prefix in ["__NR_", "__NR3264_"] where words[1].hasPrefix(prefix) {
                numbers[number, default: []].insert(String(words[1].dropFirst(prefix.count)))
            }
        }
        return numbers.filter { !isForOtherMachines($0.key, $0.value) }
    }

    /// The range of 32-bit machines with a 64-bit time, the end mark, and the mark of an architecture's own calls.
    private static func isForOtherMachines(_ number: Int, _ names: Set<String>) -> Bool {
        (403...423).contains(number) || !names.isDisjoint(with: ["syscalls", "arch_specific_syscall"])
    }
}
