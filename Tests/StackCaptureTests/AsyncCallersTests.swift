import CStackCapture
import Foundation
import TestSupport
import Testing

@Suite("Awaiting functions", .serialized, .timeLimit(.minutes(60)))
struct AsyncCallersTests {
    /// The fixture knows which function awaits which, and on which line, and checks the result itself.
    @Test("they are found with their lines, for every form of await, in computing and in sleeping threads")
    func allShapes() async throws {
        let (status, output) = try await run(["--all"])
        #expect(status == 0, "\(output)")
        #expect(output.contains(" right: 68 shapes"))
    }

    @Test(
        "they are those at the moment of the capture, however soon the thread continues and however deep it is",
        arguments: ["--churn", "--churn-anew"],
        [[], ["--deep"], ["--napping"]]
    )
    func churn(mode: String, kind: [String]) async throws {
        let (status, output) = try await run([mode] + kind + [testsAllForms ? "250" : "100"])
        #expect(status == 0, "\(output)")
        #expect(output.contains("WRONG: 0"))
    }

    @Test("none are invented for threads without an asynchronous function on the stack")
    func bystanders() async throws {
        let (status, output) = try await run(["--bystanders", "400"])
        #expect(status == 0, "\(output)")
    }

    private func run(_ arguments: [String]) async throws -> (Int32, String) {
        try await onThread { try Self.runBlocking(arguments) }
    }

    private static func runBlocking(_ arguments: [String]) throws -> (Int32, String) {
        let process = Process()
        process.executableURL = .built("async-callers")
        process.arguments = arguments
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        process.waitUntilExit()
        return (process.terminationStatus, output)
    }
}

/// The call that starts a job, in both architectures' instructions.
@Suite("The call of a job")
struct JobCallTests {
    @Test(
        "it goes through the register that holds the job (x86-64)",
        arguments: [
            ([0x41, 0xff, 0x57, 0x38], 15),  // call *0x38(%r15)
            ([0x49, 0xff, 0x53, 0x38], 3),  // call *0x38(%rbx), after another instruction's byte
            ([0x41, 0xff, 0x54, 0x24, 0x38], 12),  // call *0x38(%r12)
            ([0xff, 0x50, 0x38], -1),  // call *0x38(%rax): not preserved across calls
            ([0x41, 0xff, 0x57, 0x40], -1),  // call *0x40(%r15)
            ([0xe8, 0x00, 0x00, 0x57, 0x38], -1),  // call
        ] as [([UInt8], Int32)]
    )
    func x86_64(code: [UInt8], register: Int32) {
        #expect(unsafe stackcap_job_register_x86_64(padded(code)) == register)
    }

    @Test(
        "it goes through a register loaded from the job (aarch64)",
        arguments: [
            ([0xf940_2276, 0xf940_1e68, 0xd63f_0100], 19),  // ldr x22, [x19, #64]; ldr x8, [x19, #56]; blr x8
            ([0xa943_da88, 0xd63f_0100], 20),  // ldp x8, x22, [x20, #56]; blr x8
            ([0xf940_2268, 0xd63f_0100], -1),  // ldr x8, [x19, #64]; blr x8
            ([0xf940_1e69, 0xd63f_0100], -1),  // ldr x9, [x19, #56]; blr x8
            ([0xf940_1e68, 0x9400_0000], -1),  // bl
        ] as [([UInt32], Int32)]
    )
    func aarch64(code: [UInt32], register: Int32) {
        let bytes = code.flatMap { word in (0..<4).map { UInt8(truncatingIfNeeded: word >> (8 * $0)) } }
        #expect(unsafe stackcap_job_register_aarch64(padded(bytes)) == register)
    }

    private func padded(_ code: [UInt8]) -> [UInt8] {
        Array(repeating: 0x90, count: Int(STACKCAP_JOB_CALL_BYTES) - code.count) + code
    }
}
