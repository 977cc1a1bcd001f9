import CElf

extension ModuleSymbols {
    /// - Parameter resume: Where an awaiting function resumes, as an address in the file.
    /// - Returns: That function, at the location of the `await`. An address that starts no function is looked up unchanged.
    func answer(
        resumedAt resume: UInt64,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) -> Answer {
        if let known = awaits[resume] { return known }
        var answer = answer(resume, allowance, &problems)
        // If the lines are missing because of the budget, the answer is not cached: the next call may have a larger one.
        guard answer.symbol?.start == resume, answer.isWithoutLines == nil else { return answer }
        do throws(SymbolProblem) {
            guard let debug = try debugInformation(allowance) else { return answer }
            answer.take(try calls(resumedAt: resume, debug, allowance))
            if awaits.count >= Self.answerLimit { awaits.removeAll() }
            awaits[resume] = answer
        } catch {
            problems.append(SymbolProblem(error.code, path: error.path ?? module?.image.path, detail: error.detail))
        }
        return answer
    }

    private func calls(
        resumedAt resume: UInt64,
        _ debug: DebugInformation,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> [DebugCall] {
        for place in try suspensions(of: resume, allowance) {
            guard let function = index?.range(around: place) else { continue }
            let calls = try debug.calls(at: place, nearest: .before, in: function, allowance)
            if calls.first?.location != nil { return calls }
        }
        // A `for await` has no line there, but has the first line after the resumption.
        guard let function = index?.range(around: resume) else { return [] }
        return try debug.calls(at: resume, nearest: .behind, in: function, allowance)
    }

    /// Searches nearby first: nearly all places are there, and searching the whole reach takes a millisecond.
    private func suspensions(of resume: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> [UInt64] {
        guard let module, module.machine == UInt16(EM_X86_64) else { return [] }
        for reach in [Suspension.reach >> 5, Suspension.reach] {
            guard let (code, start) = try module.code(around: resume, reach: reach, allowance) else { return [] }
            let places = Suspension.places(of: resume, in: code, at: start)
            if !places.isEmpty { return places }
        }
        return []
    }
}

extension ELFFile {
    /// - Returns: Machine code, and the address of its first byte. Nil if the file has none: a symbol file.
    fileprivate func code(
        around address: UInt64,
        reach: UInt64,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> ([UInt8], UInt64)? {
        let section = sections.first {
            $0.flags & UInt64(SHF_EXECINSTR) != 0 && $0.address <= address
                && address - $0.address < UInt64($0.range.count)
        }
        guard let section else { return nil }
        let middle = Int(address - section.address)
        let low = middle - min(middle, Int(reach))
        let high = min(section.range.count, middle + Int(reach))
        let first = section.range.lowerBound
        return (try image.passingBytes(first + low..<first + high, allowance), section.address + UInt64(low))
    }
}
