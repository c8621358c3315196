"""The settings of a broker as keyword arguments, for type checkers.

Written by `python -m tools.broker_options` (in `tests/`) from `BrokerConfig` and
`StoreConfig`; a test compares them. Only type checkers read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from rocketmq_sdk.broker_embedded.settings.config import BrokerRole, MetricsExporterType
    from rocketmq_sdk.broker_embedded.store.config import FlushDiskType, MemoryFullPolicy
    from rocketmq_sdk.protocol.bodies.members import MessageRequestMode


class _Spelling(TypedDict, total=False):
    """Settings as Apache spells them."""

    accessMessageInMemoryMaxRatio: int
    aclEnable: bool
    allAckInSyncStateSet: bool
    allocationStep: int
    allowRecallWhenBrokerNotWriteable: bool
    authenticationEnabled: bool
    authenticationWhitelist: str | None
    authorizationEnabled: bool
    authorizationWhitelist: str | None
    autoCreateSubscriptionGroup: bool
    autoCreateTopicEnable: bool
    broadcastOffsetExpireMaxSecond: int
    broadcastOffsetExpireSecond: int
    brokerClusterName: str
    brokerFastFailureEnable: bool
    brokerId: int
    brokerIP1: str | None
    brokerIP2: str | None
    brokerName: str
    brokerPermission: int
    brokerRole: BrokerRole | Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    brokerTopicEnable: bool
    channelExpiredTimeout: int
    checkCRCOnRecover: bool
    cleanFileForciblyEnable: bool
    cleanResourceInterval: int
    clearRetryTopicWhenDeleteTopic: bool
    clusterTopicEnable: bool
    compressedRegister: bool
    configBlackList: str
    connectionMemoryLimit: int
    consumerOffsetUpdateVersionStep: int
    defaultMessageRequestMode: MessageRequestMode | Literal["PULL", "POP"]
    defaultPopShareQueueNum: int
    defaultQueryMaxNum: int
    defaultTopicQueueNums: int
    delayOffsetUpdateVersionStep: int
    deleteCommitLogFilesInterval: int
    deleteFileBatchMax: int
    deleteWhen: str
    destroyMapedFileIntervalForcibly: int
    diskMaxUsedSpaceRatio: int
    diskSpaceCleanForciblyRatio: int
    diskSpaceWarningLevelRatio: int
    enableAutoInSyncReplicas: bool
    enableBroadcastOffsetStore: bool
    enableCalcFilterBitMap: bool
    enableConsumeQueueExt: bool
    enableCreateSysGroup: bool
    enableMixedMessageType: bool
    enablePopBufferMerge: bool
    enablePropertyFilter: bool
    enableRegisterProducer: bool
    enableRetryTopicV2: bool
    enableSplitMetadata: bool
    enabledAppendPropCRC: bool
    expectConsumerNumUseFilter: int
    fileReservedTime: int
    filterDataCleanTimeSpan: int
    filterSupportRetry: bool
    flushCommitLogLeastPages: int
    flushCommitLogThoroughInterval: int
    flushConsumeQueueLeastPages: int
    flushConsumeQueueThoroughInterval: int
    flushConsumerOffsetInterval: int
    flushDelayOffsetInterval: int
    flushDiskType: FlushDiskType | Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
    flushIntervalCommitLog: int
    flushIntervalConsumeQueue: int
    forceRegister: bool
    forceVerifyPropCRC: bool
    haHousekeepingInterval: int
    haListenPort: int
    haMasterAddress: str | None
    haMaxGapNotInSync: int
    haSendHeartbeatInterval: int
    haTransferBatchSize: int
    hotBytes: int
    inSyncReplicas: int
    initAuthenticationUser: str | None
    initPopOffsetByCheckMsgInMem: bool
    innerClientAuthenticationCredentials: str | None
    listenPort: int
    litePullMessageEnable: bool
    loadBalancePollNameServerInterval: int
    longPollingEnable: bool
    mappedFileSizeCommitLog: int
    mappedFileSizeConsumeQueue: int
    mappedFileSizeConsumeQueueExt: int
    mappedFileSizeTimerLog: int
    mapperFileSizeBatchConsumeQueue: int
    maxErrorRateOfBloomFilter: int
    maxFilterMessageSize: int
    maxHashSlotNum: int
    maxIndexNum: int
    maxMessageSize: int
    maxMsgsNumBatch: int
    maxPopPollingSize: int
    maxTransferBytesOnMessageInDisk: int
    maxTransferBytesOnMessageInMemory: int
    maxTransferCountOnMessageInDisk: int
    maxTransferCountOnMessageInMemory: int
    memoryFullPolicy: MemoryFullPolicy | Literal["REMOVE_OLDEST", "REFUSE_SENDS"]
    memoryLimit: int
    messageDelayLevel: str
    messageIndexEnable: bool
    metricsExporterType: MetricsExporterType | Literal["DISABLE", "PROM"]
    metricsLabel: str | None
    metricsOtelCardinalityLimit: int
    metricsPromExporterHost: str | None
    metricsPromExporterPort: int
    migrateAuthFromV1Enabled: bool
    minInSyncReplicas: int
    msgTraceTopicName: str
    namesrvAddr: str | None
    notifyConsumerIdsChangedEnable: bool
    offsetCheckInSlave: bool
    plainAclFile: str | None
    popCkMaxBufferSize: int
    popCkOffsetMaxQueueSize: int
    popCkStayBufferTime: int
    popCkStayBufferTimeOut: int
    popFromRetryProbability: int
    popFromRetryProbabilityForPriority: int
    popPollingSize: int
    popResponseReturnActualRetryTopic: bool
    priorityOrderAsc: bool
    recallMessageEnable: bool
    regionId: str
    registerBrokerTimeoutMills: int
    registerNameServerPeriod: int
    rejectPullConsumerEnable: bool
    rejectTransactionMessage: bool
    reserveBytes: int
    retrieveMessageFromPopRetryTopicV1: bool
    reviveQueueNum: int
    serverLoadBalancerEnable: bool
    shortPollingTimeMills: int
    skipWhenCKRePutReachMaxTimes: bool
    slaveReadEnable: bool
    slaveTimeout: int
    splitMetadataSize: int
    startAcceptSendRequestTimeStamp: int
    storePathCommitLog: str | None
    storePathRootDir: str | None
    storeReplyMessageEnable: bool
    syncFlushTimeout: int
    timerCongestNumEachSlot: int
    timerFlushIntervalMs: int
    timerMaxDelaySec: int
    timerPrecisionMs: int
    timerRollWindowSlot: int
    timerStopDequeue: bool
    timerStopEnqueue: bool
    timerWheelEnable: bool
    totalReplicas: int
    traceOn: bool
    traceTopicEnable: bool
    transactionCheckInterval: int
    transactionCheckMax: int
    transactionTimeOut: int
    useSeparateRetryQueue: bool
    useServerSideResetOffset: bool
    validateSystemTopicWhenUpdateTopic: bool
    waitTimeMillsInAckQueue: int
    waitTimeMillsInAdminBrokerQueue: int
    waitTimeMillsInHeartbeatQueue: int
    waitTimeMillsInLitePullQueue: int
    waitTimeMillsInPullQueue: int
    waitTimeMillsInSendQueue: int
    waitTimeMillsInTransactionQueue: int
    warmMapedFileEnable: bool


class BrokerOptions(_Spelling, total=False):
    """Settings of a broker and its store, in either spelling."""

    access_message_in_memory_max_ratio: int
    acl_enable: bool
    all_ack_in_sync_state_set: bool
    allocation_step: int
    allow_recall_when_broker_not_writeable: bool
    authentication_enabled: bool
    authentication_whitelist: str | None
    authorization_enabled: bool
    authorization_whitelist: str | None
    auto_create_subscription_group: bool
    auto_create_topic_enable: bool
    broadcast_offset_expire_max_second: int
    broadcast_offset_expire_second: int
    broker_cluster_name: str
    broker_fast_failure_enable: bool
    broker_id: int
    broker_ip1: str | None
    broker_ip2: str | None
    broker_name: str
    broker_permission: int
    broker_role: BrokerRole | Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
    broker_topic_enable: bool
    channel_expired_timeout: int
    check_crc_on_recover: bool
    clean_file_forcibly_enable: bool
    clean_resource_interval: int
    clear_retry_topic_when_delete_topic: bool
    cluster_topic_enable: bool
    compressed_register: bool
    config_black_list: str
    connection_memory_limit: int
    consumer_offset_update_version_step: int
    default_message_request_mode: MessageRequestMode | Literal["PULL", "POP"]
    default_pop_share_queue_num: int
    default_query_max_num: int
    default_topic_queue_nums: int
    delay_offset_update_version_step: int
    delete_commit_log_files_interval: int
    delete_file_batch_max: int
    delete_when: str
    destroy_maped_file_interval_forcibly: int
    disk_max_used_space_ratio: int
    disk_space_clean_forcibly_ratio: int
    disk_space_warning_level_ratio: int
    enable_auto_in_sync_replicas: bool
    enable_broadcast_offset_store: bool
    enable_calc_filter_bit_map: bool
    enable_consume_queue_ext: bool
    enable_create_sys_group: bool
    enable_mixed_message_type: bool
    enable_pop_buffer_merge: bool
    enable_property_filter: bool
    enable_register_producer: bool
    enable_retry_topic_v2: bool
    enable_split_metadata: bool
    enabled_append_prop_crc: bool
    expect_consumer_num_use_filter: int
    file_reserved_time: int
    filter_data_clean_time_span: int
    filter_support_retry: bool
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval: int
    flush_consume_queue_least_pages: int
    flush_consume_queue_thorough_interval: int
    flush_consumer_offset_interval: int
    flush_delay_offset_interval: int
    flush_disk_type: FlushDiskType | Literal["ASYNC_FLUSH", "SYNC_FLUSH"]
    flush_interval_commit_log: int
    flush_interval_consume_queue: int
    force_register: bool
    force_verify_prop_crc: bool
    ha_housekeeping_interval: int
    ha_listen_port: int
    ha_master_address: str | None
    ha_max_gap_not_in_sync: int
    ha_send_heartbeat_interval: int
    ha_transfer_batch_size: int
    hot_bytes: int
    in_sync_replicas: int
    init_authentication_user: str | None
    init_pop_offset_by_check_msg_in_mem: bool
    inner_client_authentication_credentials: str | None
    listen_port: int
    lite_pull_message_enable: bool
    load_balance_poll_name_server_interval: int
    long_polling_enable: bool
    mapped_file_size_commit_log: int
    mapped_file_size_consume_queue: int
    mapped_file_size_consume_queue_ext: int
    mapped_file_size_timer_log: int
    mapper_file_size_batch_consume_queue: int
    max_error_rate_of_bloom_filter: int
    max_filter_message_size: int
    max_hash_slot_num: int
    max_index_num: int
    max_message_size: int
    max_msgs_num_batch: int
    max_pop_polling_size: int
    max_transfer_bytes_on_message_in_disk: int
    max_transfer_bytes_on_message_in_memory: int
    max_transfer_count_on_message_in_disk: int
    max_transfer_count_on_message_in_memory: int
    memory_full_policy: MemoryFullPolicy | Literal["REMOVE_OLDEST", "REFUSE_SENDS"]
    memory_limit: int
    message_delay_level: str
    message_index_enable: bool
    metrics_exporter_type: MetricsExporterType | Literal["DISABLE", "PROM"]
    metrics_label: str | None
    metrics_otel_cardinality_limit: int
    metrics_prom_exporter_host: str | None
    metrics_prom_exporter_port: int
    migrate_auth_from_v1_enabled: bool
    min_in_sync_replicas: int
    msg_trace_topic_name: str
    namesrv_addr: str | None
    notify_consumer_ids_changed_enable: bool
    offset_check_in_slave: bool
    plain_acl_file: str | None
    pop_ck_max_buffer_size: int
    pop_ck_offset_max_queue_size: int
    pop_ck_stay_buffer_time: int
    pop_ck_stay_buffer_time_out: int
    pop_from_retry_probability: int
    pop_from_retry_probability_for_priority: int
    pop_polling_size: int
    pop_response_return_actual_retry_topic: bool
    priority_order_asc: bool
    recall_message_enable: bool
    region_id: str
    register_broker_timeout_mills: int
    register_name_server_period: int
    reject_pull_consumer_enable: bool
    reject_transaction_message: bool
    reserve_bytes: int
    retrieve_message_from_pop_retry_topic_v1: bool
    revive_queue_num: int
    server_load_balancer_enable: bool
    short_polling_time_mills: int
    skip_when_ck_re_put_reach_max_times: bool
    slave_read_enable: bool
    slave_timeout: int
    split_metadata_size: int
    start_accept_send_request_time_stamp: int
    store_path_commit_log: str | None
    store_path_root_dir: str | None
    store_reply_message_enable: bool
    sync_flush_timeout: int
    timer_congest_num_each_slot: int
    timer_flush_interval_ms: int
    timer_max_delay_sec: int
    timer_precision_ms: int
    timer_roll_window_slot: int
    timer_stop_dequeue: bool
    timer_stop_enqueue: bool
    timer_wheel_enable: bool
    total_replicas: int
    trace_on: bool
    trace_topic_enable: bool
    transaction_check_interval: int
    transaction_check_max: int
    transaction_time_out: int
    use_separate_retry_queue: bool
    use_server_side_reset_offset: bool
    validate_system_topic_when_update_topic: bool
    wait_time_mills_in_ack_queue: int
    wait_time_mills_in_admin_broker_queue: int
    wait_time_mills_in_heartbeat_queue: int
    wait_time_mills_in_lite_pull_queue: int
    wait_time_mills_in_pull_queue: int
    wait_time_mills_in_send_queue: int
    wait_time_mills_in_transaction_queue: int
    warm_maped_file_enable: bool
