// Tests of an application in JavaScript, with a client that speaks the remoting protocol.
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import ons from 'ali-ons';
import { startBroker } from './control.mjs';

let broker;
let shop;

before(async () => {
  broker = await startBroker();
  await broker.ask('/v1/seed', { topics: { orders: 2 } });
  const quiet = { info() {}, warn() {}, error: console.error, debug() {} };
  shop = new ons.Producer({
    nameSrv: broker.namesrv,
    producerGroup: 'shop',
    accessKeyId: 'unused',
    accessKeySecret: 'unused',
    httpclient: { request: async () => ({}) },
    logger: quiet,
  });
  await shop.ready();
});

after(async () => {
  await shop?.close();
  broker?.stop();
});

beforeEach(async () => {
  await broker.ask('/v1/broker/reset');
  await broker.ask('/v1/seed', { topics: { orders: 2 } });
});

// Fails the test if a fault met nothing.
afterEach(() => broker.ask('/v1/check'));

const stored = (count) => broker.ask('/v1/wait', { for: 'stored', topic: 'orders', count });

test('an order is stored', async () => {
  await shop.send(new ons.Message('orders', 'new', '42 bananas'));
  const { messages } = await stored(1);
  assert.equal(messages[0].body, '42 bananas');
  assert.equal(messages[0].tags, 'new');
});

test('a refusal of the broker reaches the application', async () => {
  await broker.ask('/v1/faults', { code: 'send', topic: 'orders', action: 'error', error: 'NO_PERMISSION' });
  await assert.rejects(() => shop.send(new ons.Message('orders', 'new', '42 bananas')));
  assert.deepEqual(await broker.ask('/v1/topics/orders/messages', {}, 'GET'), []);
});

test('orders survive a crash of the broker', async () => {
  await shop.send(new ons.Message('orders', 'new', '1'));
  await broker.ask('/v1/broker/kill');
  await broker.ask('/v1/broker/start');
  assert.equal((await stored(1)).messages[0].body, '1');
});
