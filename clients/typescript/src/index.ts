/** Client of `sluicegate pubsub` for browsers and Node. */

export type { BackoffOptions } from "./backoff.js";
export { type CallOptions, PubSubClient, type PubSubOptions } from "./client.js";
export type { SocketLike, WebSocketClass } from "./connection.js";
export { BadValue, Forbidden, PubSubError, Refused, Unauthenticated, Unavailable } from "./errors.js";
export type { ClientState } from "./link.js";
export type {
  HistoryPage,
  MembersPage,
  PubSubGap,
  PubSubMember,
  PubSubMessage,
  PubSubPresence,
  Received,
  UsageWarning,
} from "./messages.js";
export type { SubscribeOptions, Subscription } from "./subscription.js";
export type { TokenProvider } from "./token.js";
