// The order service, which is another process, and a bank for it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** A bank whose first answers are errors; `charged` are the orders that it was paid for. */
export async function startBank({ broken = 0 } = {}) {
  const charged = [];
  const server = createHttpServer(async (request, answer) => {
    let text = '';
    for await (const part of request) text += part;
    if (broken-- > 0) answer.statusCode = 503;
    else charged.push(JSON.parse(text).number);
    answer.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const stop = () => server.closeAllConnections() ?? server.close();
  return { charged, url: `http://127.0.0.1:${server.address().port}`, stop };
}

/** Starts the service, and waits until it answers. */
export async function startShop(broker, bank) {
  const port = await freePort();
  const [program, ...first] = (process.env.UVICORN ?? 'uvicorn').split(' ');
  const child = spawn(
    program,
    [...first, '--app-dir=../orders', '--factory', 'app:from_environment', `--port=${port}`, '--log-level=error'],
    {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, NAMESRV_ADDR: broker.namesrv, BANK_URL: bank.url, ORDERS_DATABASE: ':memory:' },
    },
  );
  const at = (number) => `http://127.0.0.1:${port}/orders/${number}`;

  const place = async (number) => {
    const answer = await fetch(at(number), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ cents: 1999 }),
    });
    if (answer.status !== 201) throw new Error(`order ${number}: ${await answer.text()}`);
  };
  const state = async (number) => {
    const answer = await fetch(at(number)).catch(() => null);
    return answer === null ? 'away' : ((await answer.json()).state ?? 'unknown');
  };
  /** Waits for a state; the broker's clock goes on by so many seconds between two looks. */
  const becomes = async (number, wanted, { advance = 0 } = {}) => {
    const end = Date.now() + 30_000;
    for (let now; (now = await state(number)) !== wanted; await sleep(20)) {
      if (Date.now() > end) throw new Error(`order ${number} is ${now}, not ${wanted}`);
      if (advance > 0) await broker.ask('/v1/clock', { advance });
    }
  };
  const stop = async () => {
    child.kill();
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  };
  await becomes('none', 'unknown');
  return { place, state, becomes, stop };
}
