// A node loop that stalls by orders on standard input, like `sample-target loop`: NAME MS, answered by DID NAME BEGIN END.
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const now = () => process.hrtime.bigint();
const word = new Int32Array(new SharedArrayBuffer(4));

function compute(until) { let sum = 0; while (now() < until) for (let i = 0; i < 1000; i++) sum += i; return sum; }
function one() { compute(now() + 1000000n); }
const stalls = {
  compute: (until) => compute(until),
  sleep: (until, ms) => Atomics.wait(word, 0, 0, ms),
  short: (until) => { while (now() < until) Atomics.wait(word, 0, 0, 5); },
  calls: (until) => { while (now() < until) fs.statSync('/proc/self/cmdline'); },
  child: (until, ms) => spawnSync('sleep', [String(ms / 1000)]),
};

function obey(name, ms) {
  const begin = now(), until = begin + BigInt(ms) * 1000000n;
  const did = () => process.stdout.write(`DID ${name} ${begin} ${now()}\n`);
  const turns = () => { one(); now() < until ? setTimeout(turns, 0) : did(); };
  const spin = () => { now() < until ? setImmediate(spin) : did(); };
  if (name === 'turns') return turns();
  if (name === 'spin') return spin();
  if (name === 'turn') { for (let i = 0; i < ms; i++) setImmediate(one); return void setImmediate(did); }
  stalls[name](until, ms);
  did();
}

process.stdin.setEncoding('utf8');
process.stdin.on('data', (text) => text.trim().split('\n').forEach((line) => { const [name, ms] = line.split(' '); obey(name, Number(ms)); }));
process.stdin.on('end', () => process.exit(0));
process.stdout.write('READY\n');
