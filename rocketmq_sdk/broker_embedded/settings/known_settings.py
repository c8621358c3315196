"""All setting names of Apache's 5.4.0 broker, and the settings refused here.

The names come from a 5.4.0 broker's own answer to GET_BROKER_CONFIG, with the few that
it keeps to itself added. A name that is in this list and is no attribute of
`BrokerConfig` or `StoreConfig` is known without effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES: Final = """
    accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio accountStatsEnable
    accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity
    aclCacheMaxNum aclEnable adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity
    allAckInSyncStateSet allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync
    appendTopicForTimerDeleteKey asyncLearner asyncSendEnable authConfigPath
    authenticationEnabled authenticationMetadataProvider authenticationProvider
    authenticationStrategy authenticationWhitelist authorizationEnabled
    authorizationMetadataProvider authorizationProvider authorizationStrategy
    authorizationWhitelist autoCreateSubscriptionGroup autoCreateTopicEnable
    autoDeleteUnusedStats autoMessageVersionOnTopicLen batchDispatchRequestThreadPoolNums
    bindAddress bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore
    broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerClusterName
    brokerConfigPath brokerConfigPaths brokerElectionPriority brokerFastFailureEnable
    brokerHeartbeatInterval brokerIP1 brokerIP2 brokerId brokerName brokerNotActiveTimeoutMillis
    brokerPermission brokerRole brokerTopicEnable cgColdReadThreshold channelExpiredTimeout
    channelNotActiveInterval checkCRCOnRecover checkSyncStateSetPeriod cleanFileForciblyEnable
    cleanOfflineBrokerInterval cleanResourceInterval cleanRocksDBDirtyCQIntervalMin
    cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic clientAsyncSemaphoreValue
    clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
    clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads clusterTopicEnable coldCtrStrategyEnable coldDataFlowControlEnable
    coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf
    combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
    commercialBaseCount commercialSizePerMsg commitCommitLogLeastPages
    commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
    commitLogRecoverMaxNum commitLogStorePath commitLogSwapMapInterval
    commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize
    compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv compressedRegister
    configBlackList configManagerVersion connectTimeoutMillis consumerFallbehindThreshold
    consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
    consumerOffsetUpdateVersionStep controllerAddr controllerHeartBeatTimeoutMills
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval dLegerGroup
    dLegerPeers dLegerSelfId dataReadAheadEnable debugLockEnable defaultMessageRequestMode
    defaultPopShareQueueNum defaultQueryMaxNum defaultTopicQueueNums
    delayOffsetUpdateVersionStep deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
    deleteFileBatchMax deleteWhen destroyMapedFileIntervalForcibly disableCallbackExecutor
    disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup disappearTimeAfterStart
    diskFallRecorded diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio
    diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
    duplicationEnable enableAcceleratedRecovery enableAsyncReput enableAutoInSyncReplicas
    enableBatchPush enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
    enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction enableConnectionMetrics
    enableConsumeQueueExt enableConsumerFilter enableControllerMode enableCreateSysGroup
    enableDLegerCommitLog enableDetailStat enableFastChannelEventProcess enableLagAndDlqMetrics
    enableLmq enableLmqStats enableLogConsumeQueueRepeatedlyBuildWhenRecover
    enableMessageStoreMetrics enableMixedMessageType enableMultiDispatch
    enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
    enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog
    enablePopMessageThreshold enablePopMetrics enablePropertyFilter enableReconnectForGoAway
    enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics
    enableRetryTopicV2 enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver
    enableScheduleMessageStats enableShutdownGracefully enableSingleTopicRegister
    enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitMetadata
    enableSplitRegistration enableStatsMetrics enableTransactionMetrics enabledAppendPropCRC
    endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
    expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
    fileReservedTime filterDataCleanTimeSpan filterSupportRetry flushCommitLogLeastPages
    flushCommitLogThoroughInterval flushCommitLogTimed flushConsumeQueueLeastPages
    flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
    flushConsumerOffsetInterval flushDelayOffsetInterval flushDiskType flushIntervalCommitLog
    flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC
    forwardTimeout globalColdReadThreshold haFlowControlEnable haHousekeepingInterval
    haListenPort haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup
    haSendHeartbeatInterval haTransferBatchSize heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode inSyncReplicas indexFileReadEnable
    indexFileWriteEnable indexRocksDBEnable initAuthenticationUser initPopOffsetByCheckMsgInMem
    innerClientAuthenticationCredentials isBrokerContainer isInBrokerContainer
    isScanAvailableNameSrv isolateLogEnable kvConfigPath listenPort litePullMessageEnable
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
    loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
    loadBalanceThreadPoolQueueCapacity lockInStrictMode logicQueueForceSwapMapInterval
    logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
    logicalDiskSpaceCleanForciblyThreshold longPollingEnable mappedFileSizeCommitLog
    mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog
    mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
    maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxErrorRateOfBloomFilter
    maxFilterMessageSize maxHaTransferByteInSecond maxHashSlotNum maxIndexNum
    maxLmqConsumeQueueNum maxMessageSize maxMsgsNumBatch maxOffsetMapSize maxPopPollingSize
    maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays
    maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushIntervalMs
    messageDelayLevel messageIndexEnable messageIndexSafe messageStorePlugIn
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
    metricsPromExporterHost metricsPromExporterPort migrateAuthFromV1Enabled minInSyncReplicas
    msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable offsetCheckInSlave
    osPageCacheBusyTimeOutMills popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
    popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable
    popConsumerKVServiceInit popConsumerKVServiceLog popFromRetryProbability
    popFromRetryProbabilityForPriority popInflightMessageThreshold
    popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
    popPollingSize popResponseReturnActualRetryTopic popReviveConcurrency
    popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead printChannelGroups
    printChannelGroupsMinNum priorityOrderAsc processReplyMessageThreadPoolNums
    pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout
    putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity readOnlyCommitLogStorePaths readUnCommitted
    realTimeNotifyConsumerChange realTimePersistRocksDBConfig recallMessageEnable
    recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums
    redeleteHangedFileInterval regionId registerBrokerTimeoutMills registerNameServerPeriod
    rejectPullConsumerEnable rejectTransactionMessage replicasPerDiskPartition
    replyThreadPoolQueueCapacity retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs
    reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime rocketmqHome
    rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    searchBcqByCacheEnable sendHeartbeatTimeoutMillis sendMessageThreadPoolNums
    sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    sharedByteBufferNum shortPollingTimeMills shutdownWaitTimeSeconds skipPreOnline
    skipWhenCKRePutReachMaxTimes slaveReadEnable slaveTimeout socksProxyConfig
    spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize
    startAcceptSendRequestTimeStamp statRocksDBCQIntervalSec storePathCommitLog storePathRootDir
    storeReplyMessageEnable storeType subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFlushTimeout syncFromLastFile
    syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
    timerCongestNumEachSlot timerEnableCheckMetrics timerEnableDisruptor
    timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum
    timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
    timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable
    timerRecallToTimelineEnable timerRocksDBEnable timerRocksDBPrecisionMs
    timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours
    timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps timerRollWindowSlot timerSkipUnknownError
    timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelEnable timerWheelSnapshotFlush
    timerWheelSnapshotIntervalMs topicQueueLockNum totalReplicas traceOn traceTopicEnable
    transRocksDBEnable transWriteOriginTransHalfEnable transactionCheckInterval
    transactionCheckMax transactionMetricFlushInterval transactionOpBatchInterval
    transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap transientStorePoolEnable
    transientStorePoolSize travelCqFileNumWhenGetMessage updateNameServerAddrPeriod useABSLock
    useEpollNativeSelector usePIDColdCtrStrategy useReentrantLockWhenPutMessage
    useSeparateRetryQueue useServerSideResetOffset useSingleRocksDBForAllConfigs
    useStaticSubscription useTLS userCacheMaxNum validateSystemTopicWhenUpdateTopic
    waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue
    waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
    waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    warmMapedFileEnable writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
"""

KNOWN_SETTINGS: Final = frozenset(_NAMES.split())


class Refusal(NamedTuple):
    """When a setting is refused, and why; the text goes on after `name=value`."""

    applies: Callable[[str], bool]
    reason: str


def _true(text: str) -> bool:
    return text.strip().lower() == "true"


def _not_default_store(text: str) -> bool:
    return text.strip() not in ("default", "")


def _not_json(text: str) -> bool:
    return text.strip().upper() not in ("V1", "")


def _anything(text: str) -> bool:
    return bool(text.strip())


_ROCKSDB: Final = (
    "asks for RocksDB; this broker keeps files in Apache's default format only: leave it out"
)
_ACCESS: Final = (
    "asks for access control, which this broker does not check yet: "
    "leave it out and keep the port private, or use Apache's broker"
)
_CONTROLLER: Final = (
    "asks for a controller or a DLedger group; this broker runs alone: "
    "leave it out, or use Apache's broker"
)
_CONTAINER: Final = "asks for a broker container; open one broker for each configuration instead"
_LIGHT_QUEUES: Final = (
    "asks for light message queues, which this broker does not keep: leave it out"
)

REFUSALS: Final[dict[str, Refusal]] = {
    "storeType": Refusal(_not_default_store, _ROCKSDB),
    "configManagerVersion": Refusal(_not_json, _ROCKSDB),
    "indexRocksDBEnable": Refusal(_true, _ROCKSDB),
    "timerRocksDBEnable": Refusal(_true, _ROCKSDB),
    "transRocksDBEnable": Refusal(_true, _ROCKSDB),
    "rocksdbCQDoubleWriteEnable": Refusal(_true, _ROCKSDB),
    "enableControllerMode": Refusal(_true, _CONTROLLER),
    "enableDLegerCommitLog": Refusal(_true, _CONTROLLER),
    "enableSlaveActingMaster": Refusal(
        _true,
        (
            "asks for slaves that act as masters; "
            "here a slave becomes the master by a start with another role"
        ),
    ),
    "enableLmq": Refusal(_true, _LIGHT_QUEUES),
    "enableMultiDispatch": Refusal(_true, _LIGHT_QUEUES),
    "isBrokerContainer": Refusal(_true, _CONTAINER),
    "isInBrokerContainer": Refusal(_true, _CONTAINER),
    "brokerConfigPaths": Refusal(_anything, _CONTAINER),
    "aclEnable": Refusal(_true, _ACCESS),
    "authenticationEnabled": Refusal(_true, _ACCESS),
    "authorizationEnabled": Refusal(_true, _ACCESS),
}
