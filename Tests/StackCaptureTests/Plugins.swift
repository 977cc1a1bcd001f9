import Foundation

/// Four small libraries that differ only in the size of their frames, so that unwinding one by another's table fails.
final class Plugins: Sendable {
    let folder: String

    static let canBeMade = (try? Plugins()) != nil

    /// Nil if there is no compiler.
    init?() throws {
        folder = NSTemporaryDirectory() + "stall-plugins-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        for number in 0..<4 {
            guard try Self.compile(number, in: folder) else { return nil }
        }
    }

    deinit {
        try? FileManager.default.removeItem(atPath: folder)
    }

    func path(_ number: Int) -> String { "\(folder)/plugin\(number).so" }

    private static func compile(_ number: Int, in folder: String) throws -> Bool {
        let source = """
            #include <unistd.h>
            __attribute__((noinline)) int plugin_descend(int depth) {
                volatile char frame[\(16 + 64 * number)]; frame[0] = (char)depth;
                for (volatile int i = 0; i < 300; i++) {}
                return depth == 0 ? 0 : plugin_descend(depth - 1) + (frame[0] == 127);
            }
            int plugin_wait(int file) {
                volatile char frame[\(16 + 64 * number)]; char byte; frame[0] = 1;
                return (int)read(file, &byte, 1) + frame[0];
            }
            int plugin_run(int depth) { return plugin_descend(depth) + \(number) - \(number); }
            """
        let path = "\(folder)/plugin\(number)"
        try source.write(toFile: path + ".c", atomically: true, encoding: .utf8)
        let compiler = Process()
        compiler.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        compiler.arguments = [
            "clang", "-O1", "-fomit-frame-pointer", "-shared", "-fPIC", "-o", path + ".so", path + ".c",
        ]
        try compiler.run()
        compiler.waitUntilExit()
        return compiler.terminationStatus == 0
    }
}
