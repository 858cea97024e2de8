/** Token source: the token of the next connection, and new tokens from a provider. */

import { asError, Forbidden, Unauthenticated, Unavailable } from "./errors.js";

/**
 * Returns a token, or null to give up. An error that it throws is retried with back-off,
 * except `Unauthenticated` and `Forbidden`, which stop the client.
 */
export type TokenProvider = () => string | null | Promise<string | null>;

/** A provider that does not answer must not keep the client from trying again. */
const PROVIDER_TIMEOUT_MS = 30_000;

export class TokenSource {
  private token: string | null;
  private isFresh = true;
  private readonly provider: TokenProvider | null;

  constructor(source: string | TokenProvider) {
    this.provider = typeof source === "function" ? source : null;
    this.token = typeof source === "function" ? null : source;
  }

  /** Whether a provider can return another token. */
  get isRenewable(): boolean {
    return this.provider !== null;
  }

  /** Return the token of the next connection. */
  async take(): Promise<string> {
    if (this.token === null) {
      this.token = await this.fetch();
      this.isFresh = true;
    }
    return this.token;
  }

  /** Return another token. */
  async fetch(): Promise<string> {
    const { provider } = this;
    if (provider === null) throw new Unauthenticated("there is no token provider");
    const token = await inTime(provider);
    if (!token) throw new Unauthenticated("the token provider has given up: it returned no token");
    return token;
  }

  /** Keep a token that the service has accepted. */
  accept(token: string): void {
    this.token = token;
    this.isFresh = false;
  }

  /** Discard the token that the service rejected; return false if another token will not help. */
  reject(): boolean {
    if (this.provider === null || this.isFresh) return false;
    this.token = null;
    return true;
  }
}

/** Whether an error of the provider stops the client. */
export function isFinal(error: unknown): boolean {
  return error instanceof Unauthenticated || error instanceof Forbidden;
}

async function inTime(provider: TokenProvider): Promise<string | null> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<never>((_, reject) => {
    const late = new Unavailable(`the token provider has not answered in ${PROVIDER_TIMEOUT_MS} ms`);
    timer = setTimeout(() => reject(late), PROVIDER_TIMEOUT_MS);
  });
  try {
    return await Promise.race([Promise.resolve().then(provider), timeout]);
  } catch (error) {
    throw asError(error);
  } finally {
    clearTimeout(timer);
  }
}
