// @platformatic/kafka behind the driver.
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import * as platformatic from '@platformatic/kafka'

const manifest = new URL('package.json', new URL('..', import.meta.resolve('@platformatic/kafka')))
const TOPIC_RESOURCE = 2
const GROUP_TYPES = ['classic', 'consumer']
const OPERATIONS = { SET: 0, DELETE: 1, APPEND: 2, SUBTRACT: 3 }
const SPECS = { earliest: -2n, latest: -1n, max_timestamp: -3n }
const RETRY_MS = 100
const RETRIES = 100

export const hello = { client: 'platformatic', version: JSON.parse(readFileSync(manifest)).version }

const partitioners = {
  default: platformatic.defaultPartitioner,
  compatibility: platformatic.compatibilityPartitioner
}

/** Kafka's code, wherever the library keeps it. */
export function errorCode(error) {
  if (Number.isInteger(error?.apiCode)) return error.apiCode
  for (const inner of [...(error?.errors ?? []), error?.cause]) {
    const code = inner ? errorCode(inner) : -1
    if (code > 0) return code
  }
  return -1
}

const login = security => {
  if (!security) return {}
  const read = file => (file === null ? undefined : readFileSync(file))
  const { ca, certificate, mechanism, user, password } = security
  const tls = { ca: read(ca), cert: read(certificate), key: read(certificate) }
  return mechanism === null ? { tls } : { tls, sasl: { mechanism, username: user, password } }
}
const connection = request => ({
  clientId: 'conformance',
  ...login(request.security),
  bootstrapBrokers: request.bootstrap.split(","),
  retries: request.patience_ms ? Math.ceil(request.patience_ms / RETRY_MS) : RETRIES,
  retryDelay: RETRY_MS
})
const encode = value => (value === null || value === undefined ? null : value.toString('base64'))
const decode = value => (value === null ? undefined : Buffer.from(value, 'base64'))
const keyOf = (topic, partition) => `${topic} ${partition}`

export class Producer {
  static async open(request) {
    const producer = new Producer()
    producer.options = request
    producer.chosen = new WeakMap()
    producer.keyless = 0
    const transactional = Boolean(request.transactional_id)
    producer.client = new platformatic.Producer({
      ...connection(request),
      idempotent: transactional || Boolean(request.idempotent),
      transactionalId: request.transactional_id ?? undefined,
      compression: request.codec ?? 'none',
      autocreateTopics: true,
      partitioner: (message, key) => producer.#choose(message, key)
    })
    // The library asks for its producer id with the first transaction, and for the id 0 unless it is told otherwise.
    if (transactional) await (await producer.client.beginTransaction({ producerId: -1n, producerEpoch: -1 })).cancel()
    return producer
  }

  /** The library's own choice, which it does not tell: a number that it takes modulo the partitions. */
  #choose(message, key) {
    const partition = key ? partitioners[this.options.partitioner ?? 'default'](message, key) : this.keyless++
    this.chosen.set(message, partition)
    return partition
  }

  async produce({ records }) {
    const messages = records.map(record => ({
      topic: record.topic,
      key: decode(record.key),
      value: record.value === null ? null : decode(record.value),
      headers: new Map(record.headers.map(({ key, value }) => [Buffer.from(key), decode(value)])),
      partition: record.partition ?? undefined,
      timestamp: record.timestamp_ms === null ? undefined : BigInt(record.timestamp_ms)
    }))
    const { acks } = this.options
    try {
      const sent = await (this.transaction ?? this.client).send({ messages, acks })
      return await this.#deliveries(messages, sent.offsets ?? [])
    } catch (error) {
      return messages.map(() => ({ error: errorCode(error), partition: -1, offset: -1 }))
    }
  }

  async #deliveries(messages, sent) {
    const topics = [...new Set(messages.map(message => message.topic))]
    const { topics: known } = await this.client.metadata({ topics })
    const next = new Map(sent.map(each => [keyOf(each.topic, each.partition), Number(each.offset)]))
    return messages.map(message => {
      const chosen = message.partition ?? this.chosen.get(message)
      const partition = chosen % known.get(message.topic).partitionsCount
      const key = keyOf(message.topic, partition)
      const offset = next.get(key) ?? -1
      next.set(key, offset + 1)
      return { error: 0, partition, offset }
    })
  }

  async begin() {
    this.transaction = await this.client.beginTransaction()
  }

  async sendOffsets({ offsets, consumer }, objects) {
    const member = objects.get(consumer)
    await this.transaction.addConsumer(member.client)
    for (const { topic, partition, offset } of offsets) {
      // What is committed is the offset behind the message's.
      await this.transaction.addOffset({ ...member.last.get(keyOf(topic, partition)), offset: BigInt(offset) - 1n })
    }
  }

  async commitTransaction() {
    await this.transaction.commit()
    this.transaction = undefined
  }

  async abortTransaction() {
    await this.transaction.abort()
    this.transaction = undefined
  }

  async close() {
    await this.client.close()
  }
}

// The library knows members of groups only, so partitions that are assigned by hand are those of a group of their own.
export class Consumer {
  static async open(request) {
    const consumer = new Consumer()
    consumer.options = request
    consumer.last = new Map()
    consumer.revocations = 0
    consumer.client = new platformatic.Consumer({
      ...connection(request),
      groupId: request.group ?? `alone-${randomUUID()}`,
      groupInstanceId: request.instance_id ?? undefined,
      ...(request.assignor === 'consumer'
        ? { groupProtocol: 'consumer' }
        : { sessionTimeout: 6000, rebalanceTimeout: 6000, heartbeatInterval: 100 }),
      autocommit: false,
      maxWaitTime: request.fetch_wait_ms ?? 100,
      maxBytesPerPartition: request.partition_fetch_bytes ?? undefined,
      isolationLevel: Number(request.isolation === 'read_committed')
    })
    consumer.client.on('consumer:group:rebalance', () => consumer.revocations++)
    consumer.admin = await Admin.open(request)
    return consumer
  }

  async subscribe({ topic }) {
    this.topics = [topic]
    await this.#read()
  }

  async assign({ partitions }) {
    this.byHand = new Set(partitions.map(each => keyOf(each.topic, each.partition)))
    this.topics = [...new Set(partitions.map(each => each.topic))]
    await this.#read()
  }

  /** Read from the committed offsets, or from where a stream of before stood, with some partitions elsewhere. */
  async #read(sought) {
    const positions = sought && [...this.stream.offsetsToFetch].map(([key, offset]) => {
      const [, topic, partition] = key.match(/^(.*):(\d+)$/)
      return { topic, partition: Number(partition), offset: this.#position(topic, partition) ?? offset }
    })
    await this.stream?.close()
    this.stream = await this.client.consume({
      topics: this.topics,
      mode: sought ? 'manual' : 'committed',
      fallbackMode: this.options.offset_reset,
      offsets: sought && [...positions, sought]
    })
    this.stream.on('error', error => (this.failure = error))
    this.stream.on('readable', () => {}) // a stream that nobody listens to fetches nothing
  }

  #position(topic, partition) {
    const last = this.last.get(keyOf(topic, partition))
    return last && last.offset + 1n
  }

  assignment() {
    return (this.client.assignments ?? []).flatMap(({ topic, partitions }) =>
      partitions.map(partition => ({ topic, partition }))
    )
  }

  async poll({ timeout_ms: timeoutMs }) {
    const deadline = Date.now() + timeoutMs
    const records = []
    do {
      const owned = this.byHand ?? new Set(this.assignment().map(each => keyOf(each.topic, each.partition)))
      if (this.failure) throw this.failure
      for (let message; (message = this.stream.read()) !== null;) {
        const key = keyOf(message.topic, message.partition)
        // A fetch that was under way when the group rebalanced brings what another member owns by now.
        if (!owned.has(key)) continue
        // A rejoin brings a group back to what it committed; a position by hand does not go back.
        if (this.byHand && message.offset < (this.#position(message.topic, message.partition) ?? 0n)) continue
        this.last.set(key, message)
        records.push(recordOf(message))
      }
    } while (!records.length && Date.now() < deadline && (await sleep(2, true)))
    return { records, revocations: this.revocations }
  }

  async seek({ topic, partition, offset }) {
    this.last.delete(keyOf(topic, partition))
    await this.#read({ topic, partition, offset: BigInt(offset) })
  }

  async seekToBeginning(of) {
    await this.seek({ ...of, offset: await this.#listed(of, SPECS.earliest) })
  }

  async seekToEnd(of) {
    await this.seek({ ...of, offset: await this.#listed(of, SPECS.latest) })
  }

  position({ topic, partition }) {
    return Number(this.#position(topic, partition) ?? this.stream.offsetsToFetch.get(`${topic}:${partition}`) ?? -1)
  }

  async #listed({ topic, partition }, timestamp) {
    const offsets = await this.client.listOffsets({ topics: [topic], partitions: { [topic]: [partition] }, timestamp })
    return Number(offsets.get(topic)[partition])
  }

  async beginningAndEnd(of) {
    return [await this.#listed(of, SPECS.earliest), await this.#listed(of, SPECS.latest)]
  }

  async offsetForTime(of) {
    const offset = await this.#listed(of, BigInt(of.timestamp_ms))
    return offset < 0 ? null : offset
  }

  async commit({ offsets }) {
    const wanted = offsets ?? [...this.last.values()].map(last => ({ ...last, offset: last.offset + 1n }))
    await this.client.commit({
      offsets: wanted.map(({ topic, partition, offset }) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 }))
    })
  }

  async committed({ topic, partition }) {
    return this.admin.committed(this.client.groupId, topic, partition)
  }

  async close() {
    await this.client.close(true)
    await this.admin.close()
  }
}

function recordOf(message) {
  return {
    topic: message.topic,
    partition: message.partition,
    offset: Number(message.offset),
    key: encode(message.key),
    value: encode(message.value),
    headers: message.headerEntries.map(([key, value]) => ({ key: key.toString(), value: encode(value) })),
    timestamp_ms: Number(message.timestamp),
    timestamp_type: null
  }
}

export class Admin {
  static async open(request) {
    const admin = new Admin()
    admin.client = new platformatic.Admin({ ...connection(request), retries: 0 })
    return admin
  }

  async createTopic({ topic, count, configs }) {
    const settings = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await this.client.createTopics({ topics: [topic], partitions: count, replicas: 1, configs: settings })
  }

  async deleteTopic({ topic }) {
    await this.client.deleteTopics({ topics: [topic] })
  }

  async topics() {
    for (;;) {
      const topics = await this.client.listTopics()
      try {
        const described = await this.client.metadata({ topics, forceUpdate: true })
        return Object.fromEntries(topics.map(topic => [topic, described.topics.get(topic).partitionsCount]))
      } catch {
        await sleep(RETRY_MS) // one of them was deleted meanwhile
      }
    }
  }

  async createPartitions({ topic, count }) {
    await this.client.createPartitions({ topics: [{ name: topic, count, assignments: null }] })
  }

  async topicConfigs({ topic }) {
    const resources = [{ resourceType: TOPIC_RESOURCE, resourceName: topic, configurationKeys: null }]
    const [{ configs }] = await this.client.describeConfigs({ resources })
    return Object.fromEntries(configs.map(({ name, value }) => [name, value]))
  }

  async alterConfigs({ topic, configs }) {
    const settings = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await this.client.alterConfigs({
      resources: [{ resourceType: TOPIC_RESOURCE, resourceName: topic, configs: settings }]
    })
  }

  async incrementalAlterConfigs({ topic, changes }) {
    const configs = changes.map(({ operation, name, value }) => ({ name, value, configOperation: OPERATIONS[operation] }))
    await this.client.incrementalAlterConfigs({
      resources: [{ resourceType: TOPIC_RESOURCE, resourceName: topic, configs }]
    })
  }

  async deleteRecords({ topic, partition, offset }) {
    const topics = [{ name: topic, partitions: [{ partition, offset: BigInt(offset) }] }]
    const [deleted] = await this.client.deleteRecords({ topics })
    return Number(deleted.partitions[0].lowWatermark)
  }

  async groups() {
    return [...(await this.client.listGroups({ types: GROUP_TYPES })).keys()]
  }

  async describeGroup({ group }) {
    const { state, members } = (await this.client.describeGroups({ groups: [group] })).get(group)
    return { state: state[0] + state.slice(1).toLowerCase(), members: members.size }
  }

  async deleteGroup({ group }) {
    await this.client.deleteGroups({ groups: [group] })
  }

  async #committed(group, topics) {
    const [{ topics: found }] = await this.client.listConsumerGroupOffsets({ groups: [{ groupId: group, topics }] })
    return found.flatMap(({ name: topic, partitions }) =>
      partitions.map(each => ({ topic, partition: each.partitionIndex, offset: Number(each.committedOffset), ...each }))
    )
  }

  async groupOffsets({ group }) {
    const committed = await this.#committed(group, null)
    return committed.map(({ topic, partition, offset }) => ({ topic, partition, offset }))
  }

  async committed(group, topic, partition) {
    const [{ offset, metadata }] = await this.#committed(group, [{ name: topic, partitionIndexes: [partition] }])
    return offset < 0 ? null : { offset, metadata: metadata ?? '' }
  }

  async alterGroupOffset({ group, topic, partition, offset }) {
    const topics = [{ name: topic, partitionOffsets: [{ partition, offset: BigInt(offset) }] }]
    await this.client.alterConsumerGroupOffsets({ groupId: group, topics })
  }

  async deleteGroupOffset({ group, topic, partition }) {
    const topics = [{ name: topic, partitionIndexes: [partition] }]
    await this.client.deleteConsumerGroupOffsets({ groupId: group, topics })
  }

  async listOffset({ topic, partition, spec, timestamp_ms: timestampMs }) {
    const timestamp = SPECS[spec] ?? BigInt(timestampMs)
    const topics = [{ name: topic, partitions: [{ partitionIndex: partition, timestamp }] }]
    const [listed] = await this.client.listOffsets({ topics, isolationLevel: 0 })
    return Number(listed.partitions[0].offset)
  }

  async logDirSizes() {
    const brokers = await this.client.describeLogDirs({ topics: null })
    const topics = brokers.flatMap(({ results }) => results.flatMap(logDir => logDir.topics))
    return topics.flatMap(({ name: topic, partitions }) =>
      partitions.map(each => ({ topic, partition: each.partitionIndex, size: Number(each.partitionSize) }))
    )
  }

  async describeCluster() {
    const { id, controllerId, brokers } = await this.client.metadata({ topics: [], forceUpdate: true })
    return {
      cluster_id: id,
      controller_id: controllerId,
      brokers: [...brokers].map(([id, { host, port }]) => ({ id, host, port }))
    }
  }

  async close() {
    await this.client.close()
  }
}
