import asyncio

import pytest

from gem.agents.connections import EACH, Clients
from gem.agents.openai import OpenAIAgent
from gem.content import Message
from gem.record import Ask
from gem.testing.stub_server import StubServer


def test_many_requests_share_clients_of_few_connections():
    count = 3 * EACH
    gate = asyncio.Barrier(count)

    async def hold(clients):
        async with clients.one() as client:
            await gate.wait()
            return id(client)

    async def hold_all():
        clients = Clients(None)
        held = await asyncio.gather(*(hold(clients) for _ in range(count)))
        async with clients.one() as client, clients.one() as other:
            assert other is client  # the last one in use, whose connection is open
        assert {held.count(each) for each in held} == {EACH}
        await clients.aclose()
        assert client.is_closed
        async with clients.one() as client:
            assert not client.is_closed
        await clients.aclose()
        return len(set(held))

    assert asyncio.run(hold_all()) == 3


def test_a_connection_is_given_back_however_a_request_ends():
    async def break_off():
        clients = Clients(None)
        for _ in range(2 * EACH):
            try:
                async with clients.one() as client:
                    raise KeyError
            except KeyError:
                pass
        async with clients.one() as other:
            assert other is client
        await clients.aclose()

    asyncio.run(break_off())


def test_an_agent_asks_with_all_its_places_at_once():
    asks = [Ask(str(number), "agent", 0, (Message("user", str(number)),)) for number in range(3 * EACH)]
    with StubServer(lambda body: body["messages"][-1]["content"]) as stub:
        agent = OpenAIAgent("m", base_url=stub.base_url, concurrency=2 * EACH)
        assert [reply.text for reply in agent(asks)] == [str(number) for number in range(3 * EACH)]
        assert stub.most_at_once <= 2 * EACH
        agent.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_the_next_request_takes_the_same_connection(stream, api):
    with StubServer("yes") as stub:
        opened, server = [], stub._server
        process = server.process_request
        server.process_request = lambda *args: opened.append(1) or process(*args)
        agent = OpenAIAgent("m", base_url=stub.base_url, stream=stream, api=api)
        for number in range(4):
            (reply,) = agent([Ask(str(number), "agent", 0, (Message("user", "?"),))])
            assert reply.text == "yes"
        agent.close()
    assert len(opened) == 1
