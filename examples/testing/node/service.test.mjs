// Tests of the order service: they order over HTTP, are the bank, and let the broker fail and
// time pass by the control endpoint.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { startBroker } from './control.mjs';
import { startBank, startShop } from './service.mjs';

let broker;
let bank;
let shop;

before(async () => {
  broker = await startBroker();
});

after(() => broker?.stop());

async function open(options) {
  await broker.ask('/v1/broker/reset');
  await broker.ask('/v1/seed', { topics: ['orders-placed', 'orders-due'] });
  bank = await startBank(options);
  shop = await startShop(broker, bank);
}

afterEach(async () => {
  await shop?.stop();
  bank?.stop();
  await broker.ask('/v1/check'); // fails the test if a fault met nothing
});

test('an order is paid', async () => {
  await open();
  await shop.place('42');
  await shop.becomes('42', 'paid');
  assert.deepEqual(bank.charged, ['42']);
});

test('a payment is tried again while the bank is away', async () => {
  await open({ broken: 2 });
  await shop.place('42');
  await shop.becomes('42', 'paid', { advance: 10 });
  assert.deepEqual(bank.charged, ['42']);
});

test('an order that is not paid is cancelled after half an hour', async () => {
  await open({ broken: 1000 });
  await shop.place('42');
  await broker.ask('/v1/clock', { advance: 1790 });
  assert.equal(await shop.state('42'), 'placed');
  await shop.becomes('42', 'cancelled', { advance: 1 });
  assert.deepEqual(bank.charged, []);
});

test('an order whose commit is lost is paid all the same', async () => {
  await open();
  await broker.ask('/v1/faults', { code: 'end_transaction', times: 1, action: 'drop_request' });
  await shop.place('42');
  await shop.becomes('42', 'paid', { advance: 10 });
  assert.deepEqual(bank.charged, ['42']);
});

test('orders are paid after a crash of the broker', async () => {
  await open();
  await shop.place('41');
  await shop.becomes('41', 'paid');
  await broker.ask('/v1/broker/kill');
  await broker.ask('/v1/broker/start');
  await shop.place('42');
  await shop.becomes('42', 'paid');
  assert.deepEqual(bank.charged, ['41', '42']);
});
