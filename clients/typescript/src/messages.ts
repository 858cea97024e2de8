/** Messages: what a subscriber receives, and what the service replies, as values. */

import { BadValue, type Problem } from "./errors.js";

/** A published message of a channel. To resume after it, give `after: position`. */
export interface PubSubMessage<T = unknown> {
  readonly type: "message";
  readonly channel: string;
  readonly position: number;
  /** When the service accepted it, in microseconds since 1970. */
  readonly atUs: number;
  readonly data: T;
}

/** A change of a member. Only subscriptions with `presence: true` receive it. */
export interface PubSubPresence<T = unknown> {
  readonly type: "presence";
  readonly channel: string;
  readonly position: number;
  readonly atUs: number;
  readonly presence: "enter" | "update" | "leave";
  readonly member: string;
  readonly data: T;
}

/** Messages after `after` and before `before` are lost: the history has dropped them. */
export interface PubSubGap {
  readonly type: "gap";
  readonly channel: string;
  readonly after: number;
  readonly before: number;
  /** How many are lost, null if the service does not know. */
  readonly lost: number | null;
}

export type Received<T = unknown> = PubSubMessage<T> | PubSubPresence<T> | PubSubGap;

/** A member of a channel, since it last entered or was updated. */
export interface PubSubMember<T = unknown> {
  readonly member: string;
  readonly data: T;
  readonly position: number;
}

/** Some members of a channel; `next` is `after` of the next page, null on the last page. */
export interface MembersPage<T = unknown> {
  readonly members: readonly PubSubMember<T>[];
  readonly next: string | null;
}

/** Some messages of a channel, oldest first. */
export interface HistoryPage<T = unknown> {
  readonly messages: readonly (PubSubMessage<T> | PubSubPresence<T>)[];
  /** The last position that may be missing before `messages`. */
  readonly cut: number;
  /** The last position of any channel. */
  readonly newest: number;
  /** What is lost to a reader that has everything up to `after`. */
  readonly gap: PubSubGap | null;
}

/** A monthly or hourly limit that the account has nearly used up. */
export interface UsageWarning {
  readonly limit: string;
  readonly used: number;
  readonly nominal: number;
  readonly restricted_at: number;
}

/** An object that the service sent; the fields depend on its type. */
export interface Incoming {
  readonly type: string;
  readonly id?: number | null;
  readonly channel: string;
  readonly problem: Problem;
  readonly position: number;
  readonly at_us: number;
  readonly data: unknown;
  readonly presence?: "enter" | "update" | "leave";
  readonly member: string;
  readonly after: number;
  readonly before: number;
  readonly lost: number | null;
  readonly cut: number;
  readonly newest: number;
  readonly messages: readonly Incoming[];
  readonly members: readonly PubSubMember[];
  readonly next?: string | null;
  readonly gap: Incoming | null;
  readonly warnings?: readonly UsageWarning[];
  readonly expires_in: number | null;
  readonly message_bytes_max: number;
}

/** Return a gap of the service. */
export function gapOf(channel: string, one: Incoming): PubSubGap {
  return { type: "gap", channel, after: one.after, before: one.before, lost: one.lost };
}

/** Return a message or a change of a member. */
export function messageOf(channel: string, one: Incoming): PubSubMessage | PubSubPresence {
  const { position, at_us: atUs, data, presence, member } = one;
  if (presence === undefined) return { type: "message", channel, position, atUs, data };
  return { type: "presence", channel, position, atUs, presence, member, data };
}

/** Return data as JSON, or throw `BadValue` for data that JSON cannot write. */
export function jsonOf(data: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(data === undefined ? null : data, finite);
  } catch (error) {
    if (error instanceof BadValue) throw error;
  }
  if (text === undefined) throw new BadValue("data", "(not shown)", "send data that JSON can write");
  return text;
}

function finite(_key: string, value: unknown): unknown {
  if (typeof value !== "number" || Number.isFinite(value)) return value;
  throw new BadValue("data", String(value), "send finite numbers: JSON has no others");
}

/** Return fields of a request as JSON without braces. */
export function fieldsOf(fields: Readonly<Record<string, unknown>>): string {
  const parts = Object.entries(fields).map(([name, value]) => `"${name}":${jsonOf(value)}`);
  return parts.join(",");
}

/** Return the size of a text in UTF-8. */
export function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}
