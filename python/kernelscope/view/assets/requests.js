/* What the page asks the server. */

/** An answer that is a sentence about why there is none. */
export class Refusal extends Error {}

const GONE = "The viewer has stopped: restart kernelscope view, and open the address that it prints.";

/**
 * The answer to a question.
 * @param {string} name of the question, as in /api/name
 * @param {Record<string, string | number | boolean | null | undefined>} [parameters]
 * @param {AbortSignal} [signal] that nobody waits any more
 * @param {string} [at] where the trace is that is asked for, of several: "0/"
 * @returns {Promise<any>}
 */
export async function ask(name, parameters = {}, signal = undefined, at = "") {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given.map(([key, value]) => [key, String(value)]));
  let response;
  try {
    response = await fetch(`${at}api/${name}?${query}`, { signal, credentials: "same-origin" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refusal(GONE);
  }
  // A server that has too much to do says so in no JSON.
  const answer = await response.json().catch(() => null);
  if (!response.ok || answer === null) throw new Refusal(answer?.error ?? `The viewer does not answer (${response.status}). Try again.`);
  return answer;
}

/** Asks again and again for the same thing; each question ends the one before it. */
export class Latest {
  /** @param {string} name @param {string} [at] as of `ask` */
  constructor(name, at = "") {
    this.name = name;
    this.at = at;
    /** @type {AbortController | null} */
    this.running = null;
  }

  /**
   * The answer, or null if another question came meanwhile.
   * @param {Record<string, any>} parameters
   * @returns {Promise<any>}
   */
  async ask(parameters) {
    this.stop();
    const running = new AbortController();
    this.running = running;
    try {
      const answer = await ask(this.name, parameters, running.signal, this.at);
      return this.running === running ? answer : null;
    } catch (error) {
      if (running.signal.aborted) return null;
      throw error;
    }
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }
}
