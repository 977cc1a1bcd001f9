import ArgumentParser
import Glibc
import StallReports

/// The bytes of this process's arguments. Names of files need not be UTF-8, and Swift's strings would change them.
enum RawArguments {
    /// The last arguments: a command that the user gave after '--'.
    static func last(_ count: Int) -> [[UInt8]] { Array(all.suffix(count)) }

    private static var all: [[UInt8]] {
        (0..<Int(CommandLine.argc)).map { index in
            guard let argument = unsafe CommandLine.unsafeArgv[index] else { return [] }
            return unsafe [UInt8](UnsafeRawBufferPointer(start: argument, count: strlen(argument)))
        }
    }

    /// Refuses arguments of this command that are not UTF-8: it would read or write another file than the one that was meant.
    static func check() throws(ValidationError) {
        let own = all.prefix { $0 != Array("--".utf8) }
        var texts = own.map { (name: "the argument", bytes: $0) }
        if let value = unsafe getenv(ReportDirectory.environmentVariable) {
            let bytes = unsafe [UInt8](UnsafeRawBufferPointer(start: value, count: strlen(value)))
            texts.append(("the value of $\(ReportDirectory.environmentVariable)", bytes))
        }
        for text in texts where String(validating: text.bytes, as: UTF8.self) == nil {
            let shown = CommandFailure(String(decoding: text.bytes, as: UTF8.self))
            throw ValidationError("\(text.name) '\(shown)' is not UTF-8; give a link to that file or directory (ln -s)")
        }
    }
}
