// Loaded before a conformance suite: multiplies its deadlines by ten. Timers of two seconds and more are
// deadlines in both suites; shorter ones are pauses and stay as they are.
const [PATIENCE, SHORTEST_DEADLINE_MS] = [10, 2000];
const patient = (ms) => (ms >= SHORTEST_DEADLINE_MS ? ms * PATIENCE : ms);

const { setTimeout: start } = globalThis;
globalThis.setTimeout = (run, ms, ...rest) => start(run, patient(ms), ...rest);

const abortAfter = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => abortAfter(patient(ms));
