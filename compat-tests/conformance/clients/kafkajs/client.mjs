// kafkajs behind the driver.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import zlib from 'node:zlib'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4-napi'

const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = kafkajs
const { version } = createRequire(import.meta.url)('kafkajs/package.json')
const TOPIC_ALREADY_EXISTS = 36
const TOPIC_RESOURCE = 2

export const hello = { client: 'kafkajs', version }

// kafkajs brings gzip alone; the others are what its users plug in.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => promisify(zlib.zstdCompress)(encoder.buffer),
  decompress: buffer => promisify(zlib.zstdDecompress)(buffer)
})
const codecs = {
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}
const partitioners = {
  default: Partitioners.DefaultPartitioner,
  legacy: Partitioners.LegacyPartitioner
}

class Coded extends Error {
  constructor(code, message) {
    super(message)
    this.code = code
  }
}

/** Kafka's code, wherever kafkajs keeps it. */
export function errorCode(error) {
  for (let cause = error; cause; cause = cause.cause ?? cause.originalError) {
    if (cause.errors?.length) return errorCode(cause.errors[0])
    if (cause.groups?.length) return cause.groups[0].errorCode
    if (Number.isInteger(cause.code)) return cause.code
  }
  return -1
}

const login = security => {
  if (!security) return {}
  const read = file => (file === null ? undefined : readFileSync(file))
  const { ca, certificate, mechanism, user, password } = security
  const ssl = { ca: [read(ca)], cert: read(certificate), key: read(certificate) }
  return mechanism === null ? { ssl } : { ssl, sasl: { mechanism: mechanism.toLowerCase(), username: user, password } }
}
const connection = request =>
  new Kafka({
    brokers: request.bootstrap.split(","),
    logLevel: logLevel.NOTHING,
    ...login(request.security),
    retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: request.patience_ms ? 1 : 20 }
  })
const encode = value => (value === null || value === undefined ? null : value.toString('base64'))
const decode = value => (value === null ? null : Buffer.from(value, 'base64'))

export class Producer {
  static async open(request) {
    const producer = new Producer()
    producer.options = request
    producer.partitions = new WeakMap()
    const choose = partitioners[request.partitioner ?? 'default']()
    producer.client = connection(request).producer({
      idempotent: Boolean(request.idempotent || request.transactional_id),
      transactionalId: request.transactional_id ?? undefined,
      maxInFlightRequests: request.idempotent || request.transactional_id ? 1 : undefined,
      createPartitioner: () => record => {
        const partition = choose(record)
        producer.partitions.set(record.message, partition)
        return partition
      }
    })
    await producer.client.connect()
    // kafkajs asks for its producer id with the first transaction.
    if (request.transactional_id) await (await producer.client.transaction()).abort()
    return producer
  }

  async produce({ records }) {
    const deliveries = []
    for (let first = 0; first < records.length;) {
      let end = first
      while (end < records.length && records[end].topic === records[first].topic) end++
      deliveries.push(...(await this.#send(records.slice(first, end))))
      first = end
    }
    return deliveries
  }

  async #send(records) {
    const messages = records.map(record => ({
      key: decode(record.key),
      value: decode(record.value),
      headers: headersOf(record.headers),
      partition: record.partition ?? undefined,
      timestamp: record.timestamp_ms === null ? undefined : String(record.timestamp_ms)
    }))
    try {
      const sent = await (this.transaction ?? this.client).send({
        topic: records[0].topic,
        messages,
        acks: this.options.acks,
        compression: codecs[this.options.codec] ?? CompressionTypes.None
      })
      return this.#deliveries(messages, sent ?? [])
    } catch (error) {
      return messages.map(() => ({ error: errorCode(error), partition: -1, offset: -1 }))
    }
  }

  #deliveries(messages, sent) {
    const next = new Map(sent.map(each => [each.partition, Number(each.baseOffset)]))
    return messages.map(message => {
      const partition = this.partitions.get(message) ?? -1
      const offset = next.get(partition) ?? -1
      next.set(partition, offset + 1)
      return { error: 0, partition, offset }
    })
  }

  async begin() {
    this.transaction = await this.client.transaction()
  }

  async sendOffsets({ offsets, consumer }, objects) {
    const topics = offsets.map(({ topic, partition, offset }) => ({
      topic,
      partitions: [{ partition, offset: String(offset) }]
    }))
    await this.transaction.sendOffsets({ consumerGroupId: objects.get(consumer).group, topics })
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
    await this.client.disconnect()
  }
}

function headersOf(headers) {
  const gathered = {}
  for (const { key, value } of headers) (gathered[key] ??= []).push(decode(value))
  return gathered
}

const keyOf = (topic, partition) => `${topic} ${partition}`

// kafkajs knows members of groups only, so partitions that are assigned by hand are those of a group of their own.
export class Consumer {
  static async open(request) {
    const consumer = new Consumer()
    consumer.options = request
    consumer.group = request.group ?? `alone-${randomUUID()}`
    consumer.kafka = connection(request)
    consumer.admin = consumer.kafka.admin()
    await consumer.admin.connect()
    consumer.waiting = []
    consumer.positions = new Map()
    consumer.assigned = []
    consumer.revocations = 0
    return consumer
  }

  async subscribe({ topic }) {
    await this.#start([topic])
  }

  async assign({ partitions }) {
    await this.#start([...new Set(partitions.map(each => each.topic))])
    while (this.assigned.length === 0) await sleep(10)
  }

  async #start(topics) {
    const { options } = this
    this.client = this.kafka.consumer({
      groupId: this.group,
      heartbeatInterval: 100,
      sessionTimeout: 6000, // for what a member that kafkajs gives up leaves behind when a broker restarts slowly
      maxWaitTimeInMs: options.fetch_wait_ms ?? 100,
      maxBytesPerPartition: options.partition_fetch_bytes ?? undefined,
      readUncommitted: options.isolation !== 'read_committed'
    })
    this.client.on(this.client.events.GROUP_JOIN, ({ payload }) => {
      this.assigned = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) =>
        partitions.map(partition => ({ topic, partition }))
      )
    })
    this.client.on(this.client.events.REBALANCING, () => {
      this.revocations++
      this.assigned = []
    })
    this.client.on(this.client.events.CRASH, ({ payload: { error, restart } }) => {
      // A broker that stops closes the connection that asks it for the coordinator.  kafkajs leaves the next step to
      // the application here, as it does with errors that no repetition mends.
      if (restart || this.closed || error.cause?.name !== 'KafkaJSGroupCoordinatorNotFound') return
      this.assigned = []
      this.#start(topics).catch(failure => console.error(failure))
    })
    await this.client.connect()
    await this.client.subscribe({ topics, fromBeginning: options.offset_reset === 'earliest' })
    await this.client.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch: batch => this.#take(batch) })
  }

  // Holds a batch until polls have taken it, as a busy application would.
  async #take({ batch, heartbeat, resolveOffset, isRunning, isStale }) {
    const held = { key: keyOf(batch.topic, batch.partition), records: [...batch.messages], batch, resolveOffset }
    this.waiting.push(held)
    try {
      while (held.records.length && isRunning() && !isStale()) {
        await sleep(5)
        await heartbeat()
      }
    } finally {
      this.waiting = this.waiting.filter(each => each !== held)
    }
  }

  assignment() {
    return this.assigned
  }

  async poll({ timeout_ms: timeoutMs }) {
    const deadline = Date.now() + timeoutMs
    while (!this.waiting.some(held => held.records.length) && Date.now() < deadline) await sleep(2)
    const records = []
    for (const held of this.waiting) {
      for (const message of held.records.splice(0)) {
        held.resolveOffset(message.offset)
        // A rebalance brings a group back to what it committed; a position by hand does not go back.
        if (!this.options.group && Number(message.offset) < (this.positions.get(held.key) ?? 0)) continue
        records.push(recordOf(held.batch, message))
        this.positions.set(held.key, Number(message.offset) + 1)
      }
    }
    // The place of partitions that are assigned by hand survives rebalances of their group by its commits alone.
    if (!this.options.group && records.length) await this.commit({})
    return { records, revocations: this.revocations }
  }

  seek({ topic, partition, offset }) {
    this.positions.delete(keyOf(topic, partition))
    for (const held of this.waiting) {
      if (held.key !== keyOf(topic, partition)) continue
      held.records.length = 0
    }
    this.client.seek({ topic, partition, offset: String(offset) })
  }

  async seekToBeginning({ topic, partition }) {
    this.seek({ topic, partition, offset: (await this.#ends(topic, partition)).low })
  }

  async seekToEnd({ topic, partition }) {
    this.seek({ topic, partition, offset: (await this.#ends(topic, partition)).high })
  }

  position({ topic, partition }) {
    return this.positions.get(keyOf(topic, partition)) ?? -1
  }

  async #ends(topic, partition) {
    const offsets = await this.admin.fetchTopicOffsets(topic)
    return offsets.find(each => each.partition === partition)
  }

  async beginningAndEnd({ topic, partition }) {
    const { low, high } = await this.#ends(topic, partition)
    return [Number(low), Number(high)]
  }

  pause({ topic, partition }) {
    this.client.pause([{ topic, partitions: [partition] }])
  }

  resume({ topic, partition }) {
    this.client.resume([{ topic, partitions: [partition] }])
  }

  async commit({ offsets }) {
    const wanted = offsets
      ? offsets.map(({ topic, partition, offset, metadata }) => ({ topic, partition, offset: String(offset), metadata }))
      : [...this.positions].map(([key, offset]) => {
          const [topic, partition] = key.split(' ')
          return { topic, partition: Number(partition), offset: String(offset) }
        })
    await this.client.commitOffsets(wanted)
  }

  commitAsync(request) {
    this.commit(request).catch(error => console.error(error))
  }

  async committed({ topic, partition }) {
    const [found] = await this.admin.fetchOffsets({ groupId: this.group, topics: [topic] })
    const committed = found.partitions.find(each => each.partition === partition)
    if (!committed || Number(committed.offset) < 0) return null
    return { offset: Number(committed.offset), metadata: committed.metadata ?? '' }
  }

  async close() {
    this.closed = true
    await this.client?.disconnect()
    await this.admin.disconnect()
  }
}

function recordOf(batch, message) {
  const headers = Object.entries(message.headers ?? {}).flatMap(([key, values]) =>
    [values].flat().map(value => ({ key, value: encode(value) }))
  )
  return {
    topic: batch.topic,
    partition: batch.partition,
    offset: Number(message.offset),
    key: encode(message.key),
    value: encode(message.value),
    headers,
    timestamp_ms: Number(message.timestamp),
    timestamp_type: null
  }
}

export class Admin {
  static async open(request) {
    const admin = new Admin()
    admin.client = connection(request).admin()
    await admin.client.connect()
    return admin
  }

  async createTopic({ topic, count, configs, validate_only: validateOnly }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: count, replicationFactor: 1, configEntries }
    const created = await this.client.createTopics({ topics: [wanted], validateOnly, waitForLeaders: !validateOnly })
    if (!created) throw new Coded(TOPIC_ALREADY_EXISTS, 'kafkajs says false for a topic that exists')
  }

  deleteTopic({ topic }) {
    return this.client.deleteTopics({ topics: [topic] })
  }

  async topics() {
    const { topics } = await this.client.fetchTopicMetadata()
    return Object.fromEntries(topics.map(({ name, partitions }) => [name, partitions.length]))
  }

  async createPartitions({ topic, count }) {
    await this.client.createPartitions({ topicPartitions: [{ topic, count }] })
  }

  async topicConfigs({ topic }) {
    const described = await this.client.describeConfigs({ resources: [{ type: TOPIC_RESOURCE, name: topic }] })
    const entries = described.resources[0].configEntries
    return Object.fromEntries(entries.map(({ configName, configValue }) => [configName, configValue]))
  }

  async alterConfigs({ topic, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    await this.client.alterConfigs({ resources: [{ type: TOPIC_RESOURCE, name: topic, configEntries }] })
  }

  async deleteRecords({ topic, partition, offset }) {
    await this.client.fetchTopicOffsets(topic) // else kafkajs knows no leader
    await this.client.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] })
    const offsets = await this.client.fetchTopicOffsets(topic)
    return Number(offsets.find(each => each.partition === partition).low)
  }

  async groups() {
    return (await this.client.listGroups()).groups.map(group => group.groupId)
  }

  async describeGroup({ group }) {
    const [described] = (await this.client.describeGroups([group])).groups
    return { state: described.state, members: described.members.length }
  }

  async deleteGroup({ group }) {
    await this.client.deleteGroups([group])
  }

  async groupOffsets({ group }) {
    const fetched = await this.client.fetchOffsets({ groupId: group })
    return fetched.flatMap(({ topic, partitions }) =>
      partitions.map(({ partition, offset }) => ({ topic, partition, offset: Number(offset) }))
    )
  }

  async describeCluster() {
    const { brokers, controller, clusterId } = await this.client.describeCluster()
    return {
      cluster_id: clusterId,
      controller_id: controller,
      brokers: brokers.map(({ nodeId, host, port }) => ({ id: nodeId, host, port }))
    }
  }

  async close() {
    await this.client.disconnect()
  }
}
