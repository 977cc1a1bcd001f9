import Foundation

/// Four small libraries that differ only in the size of their frames, so that unwinding one with the table of another fails.
final class Plugins {
    let folder: String

    /// Nil, with a message, if there is no compiler.
    init?() throws {
        folder = NSTemporaryDirectory() + "trial-plugins-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        for number in 0..<4 {
            guard try Self.compile(number, in: folder) else {
                print("  no clang to build the plugins with")
                return nil
            }
        }
    }

    func remove() {
        try? FileManager.default.removeItem(atPath: folder)
    }

    private static func compile(_ number: Int, in folder: String) throws -> Bool {
        let source = """
            __attribute__((noinline)) int plugin_descend(int depth) {
                volatile char frame[\(16 + 64 * number)]; frame[0] = (char)depth;
                for (volatile int i = 0; i < 300; i++) {}
                return depth == 0 ? 0 : plugin_descend(depth - 1) + (frame[0] == 127);
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
