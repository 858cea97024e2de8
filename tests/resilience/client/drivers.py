"""All drivers that the kit has transports for, each as one function that sends one request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

import aiohttp
import httpx
import pytest
import requests

from sluicegate.resilience.client.aiohttp import ResilientMiddleware
from sluicegate.resilience.client.calls import ResilientClient
from sluicegate.resilience.client.httpx import AsyncResilientTransport, ResilientTransport
from sluicegate.resilience.client.requests import ResilientAdapter

NO_FIELDS: Final[Mapping[str, str]] = {}


class Answer(NamedTuple):
    status: int
    text: str


Send: TypeAlias = Callable[[ResilientClient, str, str, Mapping[str, str]], Answer]


def by_httpx(client: ResilientClient, url: str, method: str, fields: Mapping[str, str]) -> Answer:
    below = httpx.HTTPTransport(verify=False)  # nothing is read from disk for each request
    with httpx.Client(transport=ResilientTransport(client, below)) as driver:
        found = driver.request(method, url, headers=fields)
        return Answer(found.status_code, found.text)


def by_httpx_async(
    client: ResilientClient, url: str, method: str, fields: Mapping[str, str]
) -> Answer:
    async def send() -> Answer:
        below = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(transport=AsyncResilientTransport(client, below)) as driver:
            found = await driver.request(method, url, headers=fields)
            return Answer(found.status_code, found.text)

    return asyncio.run(send())


def by_requests(
    client: ResilientClient, url: str, method: str, fields: Mapping[str, str]
) -> Answer:
    with requests.Session() as driver:
        driver.trust_env = False
        driver.mount("http://", ResilientAdapter(client))
        found = driver.request(method, url, headers=dict(fields))
        return Answer(found.status_code, found.text)


def by_aiohttp(client: ResilientClient, url: str, method: str, fields: Mapping[str, str]) -> Answer:
    async def send() -> Answer:
        async with (
            aiohttp.ClientSession(middlewares=[ResilientMiddleware(client)]) as driver,
            driver.request(method, url, headers=fields) as found,
        ):
            return Answer(found.status, await found.text())

    return asyncio.run(send())


each_driver = pytest.mark.parametrize("send", [by_httpx, by_httpx_async, by_requests, by_aiohttp])
