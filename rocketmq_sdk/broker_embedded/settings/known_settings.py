"""What becomes of Apache's settings that are no attributes of ours, and why.

Each setting that Apache's brokers 5.4.0 and 5.5.0 name in their answers to
GET_BROKER_CONFIG, and the few that they keep to themselves, is one of three: an
attribute of `BrokerConfig` or `StoreConfig`, which works; refused when it asks for what
this broker does not do; or without effect, because the thing that it tunes does not
exist here or works so anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_THREADS: Final = "requests are served by one loop, without pools of threads and their queues"
_NETTY: Final = "there is no Netty; the limits of connections are this broker's own"
_OF_CLIENTS: Final = "it belongs to the client inside Apache's broker"
_PAGES: Final = "files are written through descriptors, not through mapped memory"
_OF_ROCKSDB: Final = "it tunes RocksDB, which is not used"
_OF_ACCESS: Final = (
    "users and policies are in config/access.json and in memory; each signature is checked, and "
    "permissions are remembered for each connection until they change"
)
_OF_CONTROLLER: Final = "it belongs to controller mode or DLedger, which are off"
_OF_METRICS: Final = "metrics are fetched, all of them together, and by nothing but HTTP"
_OF_LITE: Final = "lite topics and light queues are not kept"
_OF_COLD_DATA: Final = "cold data is read in threads and delays nobody"
_OF_COMPACTION: Final = "compacted topics are refused one by one"
_RECOVERY: Final = "recovery looks back as far as it must"
_AT_ONCE: Final = "there is no such interval: what is due is done when it is due"
_OF_LOGS: Final = "it chooses what Apache's broker writes to its own logs"
_AS_TRUE: Final = "this broker always behaves so"
_FIXED: Final = "the value is fixed here"
_ALTERNATIVE: Final = "it chooses between ways of Apache's that have one result"
_NO_POPPED_LIMIT: Final = "no number of popped messages is limited"

_WITHOUT_EFFECT: Final = {
    _THREADS: """
        ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
        adminBrokerThreadPoolQueueCapacity asyncSendEnable batchDispatchRequestThreadPoolNums
        clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity
        consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity dispatchCqCacheNum
        dispatchCqThreads dispatchFromSenderThread enableAsyncReput enableBatchPush
        enableBuildConsumeQueueConcurrently enableFastChannelEventProcess
        enableScheduleAsyncDeliver endTransactionPoolQueueCapacity endTransactionThreadPoolNums
        heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity litePullMessageThreadPoolNums
        litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums
        loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests popReviveConcurrency
        processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
        putMessageFutureThreadPoolNums putMessageTimeout putMsgIndexHightWater
        putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
        recoverConcurrently recoverThreadPoolNums replyThreadPoolQueueCapacity
        scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
        sendMessageThreadPoolNums sendThreadPoolQueueCapacity
        spinLockCollisionRetreatOptimalDegree timerEnableDisruptor timerGetMessageThreadNum
        timerPutMessageThreadNum topicQueueLockNum transactionCheckRocksdbCoreThreads
        transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity useABSLock
        useReentrantLockWhenPutMessage
        """,
    _NETTY: """
        bindAddress disableNettyWorkerGroup enableShutdownGracefully
        serverAsyncSemaphoreValue serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
        serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
        serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds
        transferMsgByHeap useEpollNativeSelector writeBufferHighWaterMark
        writeBufferLowWaterMark
        """,
    _OF_CLIENTS: """
        channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
        clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
        clientWorkerThreads connectTimeoutMillis disableCallbackExecutor enableReconnectForGoAway
        fetchNamesrvAddrInterval forwardTimeout isScanAvailableNameSrv
        maxReconnectIntervalTimeSeconds updateNameServerAddrPeriod
        """,
    _PAGES: """
        accessMessageInMemoryHotRatio cleanSwapedMapInterval commitCommitLogLeastPages
        commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
        commitLogSwapMapInterval commitLogSwapMapReserveFileNum debugLockEnable
        fastFailIfNoBufferInStorePool flushCommitLogTimed flushLeastPagesWhenWarmMapedFile
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum mappedFileSwapEnable osPageCacheBusyTimeOutMills
        putConsumeQueueDataByFileChannel redeleteHangedFileInterval sharedByteBufferNum
        timerWarmEnable transientStorePoolEnable transientStorePoolSize
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage writeWithoutMmap
        """,
    _OF_ROCKSDB: """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin
        combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
        combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq
        enableRocksDBLog estimateAccumulation iteratorWhenUseRocksdbConsumeQueue
        maxRocksDBIndexQueryDays memTableFlushIntervalMs persistConsumerOffsetIncrementally
        popConsumerFSServiceInit popConsumerKVServiceLog realTimePersistRocksDBConfig
        rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
        searchBcqByCacheEnable statRocksDBCQIntervalSec timerRecallToTimeWheelEnable
        timerRecallToTimelineEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
        timerReputServiceQueueCapacity timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
        timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
        timerRocksDBTimeExpiredMaxTps transWriteOriginTransHalfEnable
        useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs
        """,
    _OF_ACCESS: """
        aclCacheMaxNum authConfigPath authenticationMetadataProvider authenticationProvider
        authenticationStrategy authorizationMetadataProvider authorizationProvider
        authorizationStrategy userCacheMaxNum
        """,
    _OF_CONTROLLER: """
        asyncLearner brokerElectionPriority brokerHeartbeatInterval
        brokerNotActiveTimeoutMillis checkSyncStateSetPeriod controllerAddr
        controllerHeartBeatTimeoutMills dLegerGroup dLegerPeers dLegerSelfId
        fetchControllerAddrByDnsLookup haMaxTimeSlaveNotCatchup sendHeartbeatTimeoutMillis
        skipPreOnline syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod
        syncControllerMetadataPeriod syncFromLastFile syncMasterFlushOffsetWhenStartup
        """,
    _OF_METRICS: """
        commercialBaseCount commercialSizePerMsg enableConnectionMetrics enableLagAndDlqMetrics
        enableMessageStoreMetrics enablePopMetrics enableRemotingMetrics enableRequestMetrics
        enableStatsMetrics enableTransactionMetrics metricGrpcExporterIntervalInMills
        metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
        metricsExportBatchMaxDataPoints metricsGrpcExporterHeader metricsGrpcExporterTarget
        metricsInDelta
        """,
    _OF_LITE: """
        enableLiteEventMode enableLitePopLog enableLmqStats liteEventCheckInterval
        liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
        liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable
        liteLagLatencyTopK liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills
        liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount maxLmqConsumeQueueNum
        minLiteTTl
        """,
    _OF_COLD_DATA: """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable
        dataReadAheadEnable globalColdReadThreshold timerColdDataCheckIntervalMs
        usePIDColdCtrStrategy
        """,
    _OF_COMPACTION: """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
        compactionThreadNum enableCompaction maxOffsetMapSize
        """,
    _RECOVERY: """
        checkCommitLogOffsetOnRecover commitLogRecoverMaxNum enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRunningFlagsInFlush
        maxChecksumRange maxRecoveryCommitlogFiles messageIndexSafe recheckReputOffsetFromCq
        """,
    _AT_ONCE: """
        cleanOfflineBrokerInterval correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval deleteConsumeQueueFilesInterval
        disappearTimeAfterStart flushConsumerOffsetHistoryInterval maxBatchDeleteFilesNum
        popLongPollingForceNotifyInterval reviveInterval timerCheckMetricsWhen
        timerEnableCheckMetrics timerMetricSmallThreshold timerWheelSnapshotIntervalMs
        transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
        """,
    _OF_LOGS: """
        accountStatsEnable accountStatsPrintZeroValues enablePopLog
        enableScheduleMessageStats isolateLogEnable printChannelGroups
        printChannelGroupsMinNum timerProgressLogIntervalMs
        """,
    _AS_TRUE: """
        diskFallRecorded enableDetailStat enableNotifyAfterPopOrderLockRelease
        enableNotifyBeforePopCalculateLag enableSkipLongAwaitingAck indexFileReadEnable
        indexFileWriteEnable popReviveSkipIfGroupAbsent realTimeNotifyConsumerChange
        timerEnableRetryUntilSuccess useMessageFilterForNotification
        """,
    _FIXED: """
        autoDeleteUnusedStats autoMessageVersionOnTopicLen bitMapLengthConsumeQueueExt
        brokerConfigPath commitLogStorePath compatibleWithOldNameSrv
        consumerFallbehindThreshold enableCleanExpiredOffset enableConsumerFilter
        enableNetWorkFlowControl highSpeedMode kvConfigPath
        logicalDiskSpaceCleanForciblyThreshold maxConsumeQueueScan
        maxHaTransferByteInSecond maxMessageFilterNumForNotification maxSlaveResendLength
        maxStatsIdleTimeInMinutes
        maxTopicLength popPollingMapExpireTimeSeconds popPollingMapSize
        popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead pullBatchMaxMessageCount
        readUnCommitted replicasPerDiskPartition reviveAckWaitMs reviveMaxSlow reviveScanTime
        rocketmqHome sampleCountThreshold sampleSteps splitRegistrationSize
        subscriptionExpiredTimeout timerSkipUnknownError travelCqFileNumWhenGetMessage
        """,
    _ALTERNATIVE: """
        appendAckAsync appendCkAsync enablePopBatchAck enableSingleTopicRegister
        enableSplitRegistration timerWheelSnapshotFlush
        """,
    _NO_POPPED_LIMIT: "popInflightMessageThreshold",
}
WITHOUT_EFFECT: Final = {
    name: reason for reason, names in _WITHOUT_EFFECT.items() for name in names.split()
}
"""Apache's settings that change nothing in this broker, and why.

A file may hold them: they are kept, shown, and told as warnings.
"""


class RefusedSetting(NamedTuple):
    """When a setting is refused, and why; the text goes on after `name=value`.

    `applies` gets the text of the setting, and the texts of all that came with it.
    """

    applies: Callable[[str, Mapping[str, str]], bool]
    reason: str


def _true(text: str, _all: Mapping[str, str]) -> bool:
    return text.strip().lower() == "true"


def _not_default_store(text: str, _all: Mapping[str, str]) -> bool:
    return text.strip() not in ("default", "")


def _not_json(text: str, _all: Mapping[str, str]) -> bool:
    return text.strip().upper() not in ("V1", "")


def _anything(text: str, _all: Mapping[str, str]) -> bool:
    return bool(text.strip())


_ROCKSDB: Final = (
    "asks for RocksDB; this broker keeps files in Apache's default format only: leave it out"
)
_CONTROLLER: Final = (
    "asks for a controller or a DLedger group; this broker runs alone: "
    "leave it out, or use Apache's broker"
)
_CONTAINER: Final = "asks for a broker container; open one broker for each configuration instead"
_LIGHT_QUEUES: Final = (
    "asks for light message queues, which this broker does not keep: leave it out"
)
_ACTING: Final = (
    "asks for slaves that act as masters; "
    "here a slave becomes the master by a start with another role"
)
_SEVERAL_PATHS: Final = (
    "asks for logs in several directories; this broker keeps one log: leave it out, and name "
    "the directory of that log in storePathCommitLog"
)
_LOOK_UP: Final = "asks to look up name servers elsewhere: write their addresses to namesrvAddr"


def _not_empty_object(text: str, _all: Mapping[str, str]) -> bool:
    return text.strip() not in ("{}", "")


REFUSALS: Final[dict[str, RefusedSetting]] = {
    "storeType": RefusedSetting(_not_default_store, _ROCKSDB),
    "configManagerVersion": RefusedSetting(_not_json, _ROCKSDB),
    "indexRocksDBEnable": RefusedSetting(_true, _ROCKSDB),
    "timerRocksDBEnable": RefusedSetting(_true, _ROCKSDB),
    "transRocksDBEnable": RefusedSetting(_true, _ROCKSDB),
    "rocksdbCQDoubleWriteEnable": RefusedSetting(_true, _ROCKSDB),
    "enableControllerMode": RefusedSetting(_true, _CONTROLLER),
    "enableDLegerCommitLog": RefusedSetting(_true, _CONTROLLER),
    "enableSlaveActingMaster": RefusedSetting(_true, _ACTING),
    "enableRemoteEscape": RefusedSetting(_true, _ACTING),
    "popConsumerKVServiceEnable": RefusedSetting(_true, _ROCKSDB),
    "popConsumerKVServiceInit": RefusedSetting(_true, _ROCKSDB),
    "lockInStrictMode": RefusedSetting(
        _true, "asks for locks of queues that replicas agree on; a master alone gives them here"
    ),
    "disableConsumeIfConsumerReadSlowly": RefusedSetting(
        _true, "asks to shut out slow groups, which this broker does not do: leave it out"
    ),
    "enablePopMessageThreshold": RefusedSetting(
        _true, "asks for a limit of messages in flight, which this broker does not keep"
    ),
    "duplicationEnable": RefusedSetting(
        _true, "asks for a log that another process writes; use brokerRole=SLAVE instead"
    ),
    "timerInterceptDelayLevel": RefusedSetting(
        _true, "asks that timers take over delay levels, which keep queues of their own here"
    ),
    "appendTopicForTimerDeleteKey": RefusedSetting(
        _true, "asks for another form of the keys that recall timers; leave it out"
    ),
    "useStaticSubscription": RefusedSetting(
        _true, "asks for subscriptions of administrators; consumers bring theirs here"
    ),
    "haFlowControlEnable": RefusedSetting(
        _true, "asks to limit how fast slaves are served, which this broker does not do"
    ),
    "messageStorePlugIn": RefusedSetting(_anything, "asks for a store in Java; leave it out"),
    "readOnlyCommitLogStorePaths": RefusedSetting(_anything, _SEVERAL_PATHS),
    "socksProxyConfig": RefusedSetting(
        _not_empty_object, "asks for a proxy in calls to others; leave it out"
    ),
    "tls.test.mode.enable": RefusedSetting(
        _true,
        "asks for a certificate that is made up; make one, and name it in tls.server.certPath",
    ),
    "fetchNamesrvAddrByAddressServer": RefusedSetting(_true, _LOOK_UP),
    "fetchNameSrvAddrByDnsLookup": RefusedSetting(_true, _LOOK_UP),
    "enableLmq": RefusedSetting(_true, _LIGHT_QUEUES),
    "enableLmqQuota": RefusedSetting(_true, _LIGHT_QUEUES),
    "enableMultiDispatch": RefusedSetting(_true, _LIGHT_QUEUES),
    "isBrokerContainer": RefusedSetting(_true, _CONTAINER),
    "isInBrokerContainer": RefusedSetting(_true, _CONTAINER),
    "brokerConfigPaths": RefusedSetting(_anything, _CONTAINER),
}
