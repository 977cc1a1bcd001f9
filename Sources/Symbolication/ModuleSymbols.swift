/// All names of one module: its functions, and its lines if it has any.
final class ModuleSymbols {
    /// What is known about an address.
    struct Answer: Hashable {
        var symbol: SymbolIndex.Match?
        /// The innermost call first, the function itself last. Empty without lines.
        var calls: [NamedCall] = []
        /// The function itself.
        var function: NamedCall?
        /// Why lines are missing that another budget may provide.
        var isWithoutLines: SymbolProblem?
    }

    let index: SymbolIndex?
    /// The file that contains the code.
    let module: ELFFile?
    private let symbolFile: ELFFile?
    private var debug: DebugInformation?
    private var isDebugRead = false
    private var answers: [UInt64: Answer] = [:]
    /// Keyed by the address where the function resumes.
    var awaits: [UInt64: Answer] = [:]
    /// Why something is missing, for the lifetime of this object.
    private(set) var problems: [SymbolProblem]
    /// Whether the search for a symbol file was not completed: another budget may find one.
    private(set) var isProvisional = false

    static let answerLimit = 4096
    /// The approximate size of an answer with its strings.
    private static let answerCost = 400

    init(_ sought: SoughtModule, _ search: SymbolSearch, _ allowance: Allowance) throws(SymbolProblem) {
        var problems: [SymbolProblem] = []
        module = try search.module(sought, allowance, &problems)
        let own = try module.flatMap { module throws(SymbolProblem) in try SymbolIndex(module, allowance) }
        var separate: Separate = (nil, nil)
        do throws(SymbolProblem) {
            separate = try Self.separate(sought, module, own, search, allowance, &problems)
        } catch {
            // The module's own names are still valid.
            guard own?.isEmpty == false else { throw error }
            isProvisional = true
            problems.append(error.at(sought.path))
        }
        symbolFile = separate.file
        index = separate.index ?? own
        self.problems = problems
        if !isProvisional { noteWhatIsMissing(sought) }
        release()
    }

    private typealias Separate = (file: ELFFile?, index: SymbolIndex?)

    /// The symbol file if it is needed, and its functions if the module's own are not complete.
    private static func separate(
        _ sought: SoughtModule,
        _ module: ELFFile?,
        _ own: SymbolIndex?,
        _ search: SymbolSearch,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) throws(SymbolProblem) -> Separate {
        guard module?.hasDebugInformation != true,
            let file = try search.symbolFile(for: sought, module, allowance, &problems)
        else { return (nil, nil) }
        return (file, own?.isFull == true ? nil : try SymbolIndex(file, allowance))
    }

    private func noteWhatIsMissing(_ sought: SoughtModule) {
        if module == nil, symbolFile == nil, problems.isEmpty {
            problems.append(SymbolProblem(.missingFile, path: sought.path))
        } else if (symbolFile ?? module)?.hasDebugInformation != true, module != nil || symbolFile != nil {
            problems.append(SymbolProblem(.noLines, path: sought.path))
        }
    }

    /// A module whose image is given: the kernel's vDSO.
    init?(image: FileImage, _ allowance: Allowance) {
        guard let file = try? ELFFile(image, allowance), let index = try? SymbolIndex(file, allowance) else {
            return nil
        }
        self.index = index
        (module, symbolFile, problems, isDebugRead) = (file, nil, [], true)
    }

    /// Whether it should be cached: otherwise a file may still appear, or a later call may have the budget for it.
    var isWorthKeeping: Bool { !isProvisional && (index != nil || module != nil || symbolFile != nil) }

    var byteCount: Int {
        let images = [module, symbolFile].reduce(0) { $0 + ($1?.image.byteCount ?? 0) }
        return images + (index?.byteCount ?? 0) + (debug?.byteCount ?? 0)
            + (answers.count + awaits.count) * Self.answerCost
    }

    /// Whether names that were not needed so far can still be read.
    var isReachable: Bool { [module, symbolFile].allSatisfy { $0?.image.isReachable != false } }

    /// Whether it has each of the files that the others have.
    func canReplace(_ others: ModuleSymbols) -> Bool {
        isWorthKeeping && (module != nil || others.module == nil) && (symbolFile != nil || others.symbolFile == nil)
    }

    /// Closes the files.
    func release() {
        module?.image.release()
        symbolFile?.image.release()
    }

    /// - Parameter address: An address in the file.
    /// - Returns: What is known. What is missing because of the budget or a damaged file is added to `problems`.
    func answer(_ address: UInt64, _ allowance: Allowance, _ problems: inout [SymbolProblem]) -> Answer {
        if let known = answers[address], known.isWithoutLines == nil || !allowance.inflates {
            if let problem = known.isWithoutLines { problems.append(problem) }
            return known
        }
        var answer = Answer()
        do throws(SymbolProblem) {
            answer.symbol = try index?.match(address, allowance)
            answer.function = answer.symbol.map { NamedCall(DebugCall(name: $0.name, location: nil)) }
            do throws(SymbolProblem) {
                if let debug = try debugInformation(allowance) { answer.take(try calls(at: address, debug, allowance)) }
            } catch {
                guard error.code == .compressed else { throw error }
                answer.isWithoutLines = error
                problems.append(error)
            }
            if answers.count >= Self.answerLimit { answers.removeAll() }
            answers[address] = answer
        } catch {
            problems.append(error.at(module?.image.path))
        }
        return answer
    }

    /// Swift's compiler gives no line to some instructions of a function in a source file: in debug builds a `for` loop calls its iterator
    /// there. Such a call has the nearest line before, which is that of the `for`.
    private func calls(
        at address: UInt64,
        _ debug: DebugInformation,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> [DebugCall] {
        let calls = try debug.calls(at: address, allowance)
        guard let innermost = calls.first, innermost.location == nil, let name = innermost.name,
            Demangler.swiftModule(of: name) != nil, let function = index?.range(around: address)
        else { return calls }
        let near = try debug.calls(at: address, nearest: .before, in: function, allowance)
        // Another inlined call of the same function is elsewhere.
        return near.count == calls.count && near.dropFirst() == calls.dropFirst() ? near : calls
    }

    func debugInformation(_ allowance: Allowance) throws(SymbolProblem) -> DebugInformation? {
        guard !isDebugRead, let file = symbolFile ?? module else { return debug }
        do throws(SymbolProblem) {
            debug = try DebugInformation(file, allowance)
        } catch {
            // Another budget may suffice; a damaged file stays damaged.
            isDebugRead = !error.isOfBudget
            if isDebugRead { problems.append(error) }
            throw error
        }
        isDebugRead = true
        return debug
    }
}

extension ModuleSymbols.Answer {
    /// - Parameter found: The innermost call first, the function itself last. If it is empty, nothing changes.
    mutating func take(_ found: [DebugCall]) {
        guard let last = found.last else { return }
        calls = found.dropLast().map(NamedCall.init)
        // The symbol table's name is the one that other tools and stripped builds also show.
        var function = function ?? NamedCall(last)
        function.location = last.location
        self.function = function
    }
}

/// A call as recorded in the debug information.
struct DebugCall: Hashable {
    /// The linker's name, or the source name if there is none.
    var name: String?
    var location: SourcePosition?
}

/// A call with its demangled name.
struct NamedCall: Hashable {
    /// The linker's name.
    var symbol: String?
    var function: String?
    var swiftModule: String?
    var language: SymbolicatedFrame.Language?
    var location: SourcePosition?

    init(_ call: DebugCall) {
        location = call.location
        guard let name = call.name else { return }
        symbol = name
        language = Demangler.language(of: name)
        let demangled = Demangler.demangle(name)
        function = demangled
        swiftModule = language == .swift ? Demangler.swiftModule(ofDemangled: demangled) : nil
    }
}
