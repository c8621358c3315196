// The control endpoint of `rocketmq test-broker`, as tests in JavaScript use it.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Starts a test broker; `namesrv` is where its name server is. */
export async function startBroker() {
  const ready = join(mkdtempSync(join(tmpdir(), 'rocketmq-')), 'ready.json');
  const command = (process.env.ROCKETMQ_TEST_BROKER ?? 'rocketmq test-broker').split(' ');
  const child = spawn(
    command[0],
    [...command.slice(1), '--control=127.0.0.1:0', '--virtual-clock', `--ready-file=${ready}`],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  const end = Date.now() + 30_000;
  while (!existsSync(ready)) {
    if (child.exitCode !== null || Date.now() > end) throw new Error('the test broker did not start');
    await sleep(10);
  }
  const { namesrv, control } = JSON.parse(readFileSync(ready, 'utf8'));

  async function ask(path, body = {}, method = 'POST') {
    const answer = await fetch(control + path, {
      method,
      headers: { 'content-type': 'application/json' },
      body: method === 'GET' ? undefined : JSON.stringify(body),
    });
    const found = await answer.json();
    if (!answer.ok) throw new Error(`${path}: ${found.error}`);
    return found;
  }

  return { namesrv, ask, stop: () => child.kill() };
}
