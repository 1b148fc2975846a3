BEGIN TRANSACTION;
CREATE TABLE ledger_account (
	name TEXT NOT NULL, 
	dataset TEXT NOT NULL, 
	unit TEXT NOT NULL, 
	unit_column TEXT, 
	adjacency TEXT NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	renyi_order DOUBLE, 
	budget DOUBLE NOT NULL, 
	period_days INTEGER, 
	period_epsilon DOUBLE, 
	key_id TEXT NOT NULL, 
	partition_key TEXT NOT NULL, 
	opened_at TEXT NOT NULL, 
	split TEXT, 
	gaussian_budget DOUBLE, 
	rooms TEXT, 
	terms TEXT, 
	PRIMARY KEY (name), 
	UNIQUE (dataset)
);
INSERT INTO "ledger_account" VALUES('letters','letters','person','unit','add_remove',30.0,1.0e-06,2.31673624890663099051e+00,1.94885336453747441964e+01,NULL,NULL,'b1d354797fac','0dc4a54b9a9d591b4b6e0f83e7d00268e4a09da813b1068010c04de483bc9bdf','2026-11-20T12:00:00.000000Z','{"chances":0.05,"gaussian":0.35,"renyi":0.2,"repeats":0.4}',1.85684555392673829032e+01,NULL,NULL);
CREATE TABLE ledger_draw (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	token BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (release_id, part, number)
);
CREATE TABLE ledger_entry (
	release_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	account TEXT NOT NULL, 
	method TEXT NOT NULL, 
	state TEXT NOT NULL CHECK (state IN ('RESERVED', 'BEGUN', 'COMMITTED', 'LOST', 'VOID')), 
	event TEXT NOT NULL, 
	loss DOUBLE NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	reserved_at TEXT NOT NULL, 
	changed_at TEXT NOT NULL, 
	scratch TEXT, 
	host TEXT, 
	nonce TEXT, 
	artifact_sha256 TEXT, 
	certificate_sha256 TEXT, 
	reason TEXT, 
	reserved_by TEXT, 
	mu_squared DOUBLE, 
	PRIMARY KEY (release_id), 
	UNIQUE (number), 
	FOREIGN KEY(account) REFERENCES ledger_account (name)
);
INSERT INTO "ledger_entry" VALUES('invisible_ink-17c313788e76135e',1,'letters','invisible_ink','COMMITTED','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.2100919268348}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',2.54433671216967205452e+00,5.99988760861980363614e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-17c313788e76135e','clinic','186a51bce54048cef5dfe1af532a0ebe','5e2f2cebcd21065b3c147a4e6d70379cf829b619a5507f9b22d9f6c6fcf16f79','b986464483cd656f09ea294ff2c805d9c73a25c56e2a8767e226a782676853e1',NULL,NULL,1.56526726941217053656e+00);
INSERT INTO "ledger_entry" VALUES('private_prediction-b43a1015381e43ac',2,'letters','private_prediction','COMMITTED','{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1}',1.05551127882482909114e+00,4.16480096713266689789e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_prediction-b43a1015381e43ac','clinic','0dd6b18bfb82b1e2b3c12592990a4e36','98474383ec963f295b393e158ae687673b2b664e845d68f0eab8ad547da3a629','b0ee3a869d9b69e308b50b600584d815f59ccb88a9cc4a62a80eb196be2b8cbf',NULL,NULL,9.50719085562103161102e-01);
INSERT INTO "ledger_entry" VALUES('private_evolution-53ee7e130041bae8',3,'letters','private_evolution','COMMITTED','{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.1821521046851342,"version":1}',1.65779136957921147121e+00,5.99999999969990494008e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/private_evolution-53ee7e130041bae8','clinic','2aab5e91d3fb930b405a246af32324f3','72ebc1f1e0e09bba73bef833672911aa0bccf94e8c978dd2505584f040f389ed','e3ddf5dd70a3154db1b097c64c4b6013186ed665eb05235964f533e715c9456a',NULL,NULL,1.43114380876251723329e+00);
INSERT INTO "ledger_entry" VALUES('keyphrase_seeding-47290a7cc179b512',4,'letters','keyphrase_seeding','COMMITTED','{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863182},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863184}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1}',1.65779136957589035006e+00,5.99999999969297626023e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/keyphrase_seeding-47290a7cc179b512','clinic','cfbca8b83c5de527ad9fc2b63c24dbf8','d7a2b81c6eb43980db96293450b177043efc52d0647d21aeaa068ec99a46c460','6cac9975515080976e101e4ca227c8f1b59e4562eaa1b89c4ad7f571347c026f',NULL,NULL,1.43114380875965019335e+00);
INSERT INTO "ledger_entry" VALUES('dp_lora-f3ccb138f04fa5b9',5,'letters','dp_lora','COMMITTED','{"kind":"sampled_gaussian","noise_multiplier":1.08,"rate":0.5,"steps":3,"version":1}',1.09255052455484769069e+00,5.99636581708081717323e+00,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/dp_lora-f3ccb138f04fa5b9','clinic','7d36b5ed71b41141a3d2436bbe1b97cf','96ecc47b58c66211de5b93a5d94a28c8ab95e86a4462e56bb011dba939d2a97f','744e65f0b13c4dbbcdbb284dadbf361962109046ec14b1eaa3d77a4198158eee',NULL,NULL,1.580944455833032114e+00);
INSERT INTO "ledger_entry" VALUES('invisible_ink-9989ee62c41c3558',6,'letters','invisible_ink','BEGUN','{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.44127068736336444}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1}',3.38335848207572398305e-01,9.99933529541799259732e-01,1.0e-06,'2026-11-20T12:00:00.000000Z','2026-11-20T12:00:00.000000Z','/tmp/clinic/.privsyn/scratch/invisible_ink-9989ee62c41c3558','clinic','093dae1eec45ca6edb29aecfede0c993',NULL,NULL,NULL,NULL,7.06158970456292334194e-02);
CREATE TABLE ledger_head (
	id INTEGER NOT NULL CHECK (id = 1), 
	seq BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger_head" VALUES(1,18,'b8040c32f89676a725cbaf95f5f9903360a80d321f96aa8c05cca5caf7993ff7');
CREATE TABLE ledger_history (
	seq BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	change TEXT NOT NULL, 
	body TEXT NOT NULL, 
	previous TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "ledger_history" VALUES(1,'2026-11-20T12:00:00.000000Z','letters',NULL,'OPENED','{"adjacency":"add_remove","budget":19.488533645374744,"dataset":"letters","delta":1e-06,"epsilon":30.0,"gaussian_budget":18.568455539267383,"key_id":"b1d354797fac","key_sha256":"dd876ae6245b9c60671758145e62c0a15d729a1c73d1a1a1a273498fcdfb4c84","period_days":null,"period_epsilon":null,"renyi_order":2.316736248906631,"rooms":null,"salt":"498d7222e6b6c21b1b53ef771be72c70","split":"{\"chances\":0.05,\"gaussian\":0.35,\"renyi\":0.2,\"repeats\":0.4}","unit":"person","unit_column":"unit"}','0000000000000000000000000000000000000000000000000000000000000000','c12265062575cd8f10e76b3acf7ebbe65949f77ddbdb64e4bf596c29bb4857ff');
INSERT INTO "ledger_history" VALUES(2,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-17c313788e76135e','RESERVED','{"delta":1e-06,"epsilon":5.999887608619804,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":1.2100919268348}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":2.544336712169672,"method":"invisible_ink","mu_squared":1.5652672694121705,"number":1,"salt":"d9fc0b4e51d31d77086e1a4458d0db51","settings_digest":"300ba7b3238404507cad7746582fb32008ee6125ddd4230ca81f074e05aac103"}','c12265062575cd8f10e76b3acf7ebbe65949f77ddbdb64e4bf596c29bb4857ff','68e5ef4d4d100472f32473dff6a4c193f07bbffd9cffb58f2b5942444df19e57');
INSERT INTO "ledger_history" VALUES(3,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-17c313788e76135e','BEGUN','{"host":"clinic","nonce":"186a51bce54048cef5dfe1af532a0ebe","salt":"b37e5e7f09b7e9fd1d3c5c379f6a7640","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-17c313788e76135e"}','68e5ef4d4d100472f32473dff6a4c193f07bbffd9cffb58f2b5942444df19e57','0f8b8368b1796515613d773da0dc96246b5d5b0bfc86ed8c0a24cd977c8c5f4a');
INSERT INTO "ledger_history" VALUES(4,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-17c313788e76135e','COMMITTED','{"artifact_sha256":"5e2f2cebcd21065b3c147a4e6d70379cf829b619a5507f9b22d9f6c6fcf16f79","certificate_sha256":"b986464483cd656f09ea294ff2c805d9c73a25c56e2a8767e226a782676853e1","salt":"45b4fac0972b61cf218027d95aacc2fd"}','0f8b8368b1796515613d773da0dc96246b5d5b0bfc86ed8c0a24cd977c8c5f4a','705f57d37c580dd46f577d9de4fbbdc14940cf701955f698e962bb5057437fe6');
INSERT INTO "ledger_history" VALUES(5,'2026-11-20T12:00:00.000000Z','letters','private_prediction-b43a1015381e43ac','RESERVED','{"delta":1e-06,"epsilon":4.164800967132667,"event":{"cells":2,"events":[{"count":12,"events":[{"epsilon":0.25,"kind":"pure"},{"count":1,"kind":"bounded_range","range":0.25}],"kind":"rounds"}],"kind":"disjoint","version":1},"loss":1.055511278824829,"method":"private_prediction","mu_squared":0.9507190855621032,"number":2,"salt":"288964120072582350cfc3e2d8b92a6b","settings_digest":"f815abd9606e3d8e46b3a39eccb0f8a4bbd1798129f1878790c85a13ba4f501b"}','705f57d37c580dd46f577d9de4fbbdc14940cf701955f698e962bb5057437fe6','41003554d43bbc07cf3defafd072811eeb40ec9cd32fd2915a39fdbb1fad085a');
INSERT INTO "ledger_history" VALUES(6,'2026-11-20T12:00:00.000000Z','letters','private_prediction-b43a1015381e43ac','BEGUN','{"host":"clinic","nonce":"0dd6b18bfb82b1e2b3c12592990a4e36","salt":"a0315e1a804990604d19d5737053d02f","scratch":"/tmp/clinic/.privsyn/scratch/private_prediction-b43a1015381e43ac"}','41003554d43bbc07cf3defafd072811eeb40ec9cd32fd2915a39fdbb1fad085a','83b822db59bdda235da5bf9ca732a21e7a6888ff4c61749af0b004bf4bf88ab5');
INSERT INTO "ledger_history" VALUES(7,'2026-11-20T12:00:00.000000Z','letters','private_prediction-b43a1015381e43ac','COMMITTED','{"artifact_sha256":"98474383ec963f295b393e158ae687673b2b664e845d68f0eab8ad547da3a629","certificate_sha256":"b0ee3a869d9b69e308b50b600584d815f59ccb88a9cc4a62a80eb196be2b8cbf","salt":"f98b4fe6a85ddb761ab1005bc357c67c"}','83b822db59bdda235da5bf9ca732a21e7a6888ff4c61749af0b004bf4bf88ab5','dbfd3796d7438c7f1f96c296d13978bd4d2df69fe4f2f1d9bfb52ef0243fd60f');
INSERT INTO "ledger_history" VALUES(8,'2026-11-20T12:00:00.000000Z','letters','private_evolution-53ee7e130041bae8','RESERVED','{"delta":1e-06,"epsilon":5.999999999699905,"event":{"count":2,"kind":"discrete_gaussian","noise_multiplier":1.1821521046851342,"version":1},"loss":1.6577913695792115,"method":"private_evolution","mu_squared":1.4311438087625172,"number":3,"salt":"c6f89c7aae3f36994f88264e55ef4608","settings_digest":"a6cfbf9f0950a0178fb08646775b26f9b3f688bf2d59868fb684ebacb2c27d37"}','dbfd3796d7438c7f1f96c296d13978bd4d2df69fe4f2f1d9bfb52ef0243fd60f','9f91ee331a83c5d31302acce9cadf44d2e3debcb44be7433f923ae3b82d57e34');
INSERT INTO "ledger_history" VALUES(9,'2026-11-20T12:00:00.000000Z','letters','private_evolution-53ee7e130041bae8','BEGUN','{"host":"clinic","nonce":"2aab5e91d3fb930b405a246af32324f3","salt":"6aad4a101d39ebeaac693e9f23c682e0","scratch":"/tmp/clinic/.privsyn/scratch/private_evolution-53ee7e130041bae8"}','9f91ee331a83c5d31302acce9cadf44d2e3debcb44be7433f923ae3b82d57e34','b05fcaab75d5862bb69da9c308353fb9776963085e86799feae7cf8421c59adc');
INSERT INTO "ledger_history" VALUES(10,'2026-11-20T12:00:00.000000Z','letters','private_evolution-53ee7e130041bae8','COMMITTED','{"artifact_sha256":"72ebc1f1e0e09bba73bef833672911aa0bccf94e8c978dd2505584f040f389ed","certificate_sha256":"e3ddf5dd70a3154db1b097c64c4b6013186ed665eb05235964f533e715c9456a","salt":"922227aef23b5a1aa0564365c346e05c"}','b05fcaab75d5862bb69da9c308353fb9776963085e86799feae7cf8421c59adc','0b8b4cc6b7f757a7db1020308657162136f208c05c7c9f0f2bc532daea898edc');
INSERT INTO "ledger_history" VALUES(11,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-47290a7cc179b512','RESERVED','{"delta":1e-06,"epsilon":5.999999999692976,"event":{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863182},{"cells":2,"events":[{"events":[{"count":1,"kind":"discrete_gaussian","noise_multiplier":1.1821521046863184}],"kind":"sequence"}],"kind":"disjoint"}],"kind":"sequence","version":1},"loss":1.6577913695758904,"method":"keyphrase_seeding","mu_squared":1.4311438087596502,"number":4,"salt":"688b44f30d532305c0193ac2d443621e","settings_digest":"00ad78dfefc30a13b583bb0b644a156ac8883febb0e9aeb021dd47766ee65950"}','0b8b4cc6b7f757a7db1020308657162136f208c05c7c9f0f2bc532daea898edc','e51d940d6bcddb449a8f10fccfe0bbb57459c970d87f41fae963ac1c8a958dfd');
INSERT INTO "ledger_history" VALUES(12,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-47290a7cc179b512','BEGUN','{"host":"clinic","nonce":"cfbca8b83c5de527ad9fc2b63c24dbf8","salt":"545dd275f7a1c853a8841ee741648fe8","scratch":"/tmp/clinic/.privsyn/scratch/keyphrase_seeding-47290a7cc179b512"}','e51d940d6bcddb449a8f10fccfe0bbb57459c970d87f41fae963ac1c8a958dfd','bf19fbaa8d1f3c2a81a1707eff8222609448e4eba546a2daf223e4af059567c5');
INSERT INTO "ledger_history" VALUES(13,'2026-11-20T12:00:00.000000Z','letters','keyphrase_seeding-47290a7cc179b512','COMMITTED','{"artifact_sha256":"d7a2b81c6eb43980db96293450b177043efc52d0647d21aeaa068ec99a46c460","certificate_sha256":"6cac9975515080976e101e4ca227c8f1b59e4562eaa1b89c4ad7f571347c026f","salt":"7559beaba2aaf734442fb204fe7a5f90"}','bf19fbaa8d1f3c2a81a1707eff8222609448e4eba546a2daf223e4af059567c5','7c2beab8cb9815994c03245bb55c5513c91cf0f10169de4755885cad55cd1b3b');
INSERT INTO "ledger_history" VALUES(14,'2026-11-20T12:00:00.000000Z','letters','dp_lora-f3ccb138f04fa5b9','RESERVED','{"delta":1e-06,"epsilon":5.996365817080817,"event":{"kind":"sampled_gaussian","noise_multiplier":1.08,"rate":0.5,"steps":3,"version":1},"loss":1.0925505245548477,"method":"dp_lora","mu_squared":1.5809444558330321,"number":5,"salt":"a05d8c8e6f4e8a2db7bf73a8c3c2f6fe","settings_digest":"ecc5515e2a03aec83755e3f6bcac0266f07fe1c0b796292b1b308b79ab2a49f2"}','7c2beab8cb9815994c03245bb55c5513c91cf0f10169de4755885cad55cd1b3b','2549cd1022fc14e53dc67dbd659f4a57f03f3357fbf9f11f800478daee418067');
INSERT INTO "ledger_history" VALUES(15,'2026-11-20T12:00:00.000000Z','letters','dp_lora-f3ccb138f04fa5b9','BEGUN','{"host":"clinic","nonce":"7d36b5ed71b41141a3d2436bbe1b97cf","salt":"72a0bb41bc6a5f99c1cb6614e87c8c02","scratch":"/tmp/clinic/.privsyn/scratch/dp_lora-f3ccb138f04fa5b9"}','2549cd1022fc14e53dc67dbd659f4a57f03f3357fbf9f11f800478daee418067','25435a4c7c48eb9f6cee9e81aa110c51f07ccf2f788fd9b881ac8f7d32d57be0');
INSERT INTO "ledger_history" VALUES(16,'2026-11-20T12:00:00.000000Z','letters','dp_lora-f3ccb138f04fa5b9','COMMITTED','{"artifact_sha256":"96ecc47b58c66211de5b93a5d94a28c8ab95e86a4462e56bb011dba939d2a97f","certificate_sha256":"744e65f0b13c4dbbcdbb284dadbf361962109046ec14b1eaa3d77a4198158eee","salt":"ce5b359ca8731acee9a965815adeded6"}','25435a4c7c48eb9f6cee9e81aa110c51f07ccf2f788fd9b881ac8f7d32d57be0','1cb5394678680960cf9b24a8879c11a987d4c3ccaf413761de88d62c21d70ce5');
INSERT INTO "ledger_history" VALUES(17,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-9989ee62c41c3558','RESERVED','{"delta":1e-06,"epsilon":0.9999335295417993,"event":{"event":{"cells":2,"events":[{"count":6,"kind":"bounded_range","range":0.44127068736336444}],"kind":"disjoint"},"kind":"random_allocation","places":8,"version":1},"loss":0.3383358482075724,"method":"invisible_ink","mu_squared":0.07061589704562923,"number":6,"salt":"4e43a95ee23ce82774da3906862769b0","settings_digest":"bd1c3416f4424a7329211d68fba0ad4848daa5f3ef8cf2f26e0835103b13c31e"}','1cb5394678680960cf9b24a8879c11a987d4c3ccaf413761de88d62c21d70ce5','f1bffc301ab6a06ffc8d174d43d11411493c35c86cf27f532258c4f64c66427a');
INSERT INTO "ledger_history" VALUES(18,'2026-11-20T12:00:00.000000Z','letters','invisible_ink-9989ee62c41c3558','BEGUN','{"host":"clinic","nonce":"093dae1eec45ca6edb29aecfede0c993","salt":"3c99209b7342f1597298a178d6238349","scratch":"/tmp/clinic/.privsyn/scratch/invisible_ink-9989ee62c41c3558"}','f1bffc301ab6a06ffc8d174d43d11411493c35c86cf27f532258c4f64c66427a','b8040c32f89676a725cbaf95f5f9903360a80d321f96aa8c05cca5caf7993ff7');
CREATE TABLE ledger_lease (
	release_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	token BIGINT NOT NULL, 
	machine TEXT, 
	host TEXT, 
	pid BIGINT, 
	started BIGINT, 
	expires_at TEXT NOT NULL, 
	steps BIGINT NOT NULL, 
	PRIMARY KEY (release_id, part)
);
INSERT INTO "ledger_lease" VALUES('invisible_ink-17c313788e76135e','partition',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-17c313788e76135e','shard-0',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-17c313788e76135e','shard-1',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',48);
INSERT INTO "ledger_lease" VALUES('invisible_ink-17c313788e76135e','certificate',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-b43a1015381e43ac','partition',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_prediction-b43a1015381e43ac','shard-0',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',32);
INSERT INTO "ledger_lease" VALUES('private_prediction-b43a1015381e43ac','shard-1',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',38);
INSERT INTO "ledger_lease" VALUES('private_prediction-b43a1015381e43ac','certificate',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-53ee7e130041bae8','partition',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('private_evolution-53ee7e130041bae8','shard-0',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',16);
INSERT INTO "ledger_lease" VALUES('private_evolution-53ee7e130041bae8','certificate',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-47290a7cc179b512','partition',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-47290a7cc179b512','shard-0',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',6);
INSERT INTO "ledger_lease" VALUES('keyphrase_seeding-47290a7cc179b512','certificate',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-f3ccb138f04fa5b9','partition',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-f3ccb138f04fa5b9','shard-train',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',1);
INSERT INTO "ledger_lease" VALUES('dp_lora-f3ccb138f04fa5b9','shard-0',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('dp_lora-f3ccb138f04fa5b9','certificate',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-9989ee62c41c3558','partition',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',0);
INSERT INTO "ledger_lease" VALUES('invisible_ink-9989ee62c41c3558','shard-0',1,NULL,'clinic',29038,531889,'2026-11-20T12:01:00.000000Z',48);
CREATE TABLE ledger_migration (
	version INTEGER NOT NULL, 
	applied_at TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "ledger_migration" VALUES(11,'2026-11-26T23:24:26.424236Z');
CREATE TABLE ledger_refusal (
	number BIGINT NOT NULL, 
	at TEXT NOT NULL, 
	account TEXT NOT NULL, 
	release_id TEXT, 
	method TEXT, 
	epsilon DOUBLE, 
	delta DOUBLE, 
	error TEXT NOT NULL, 
	message TEXT NOT NULL, 
	refused_by TEXT, 
	PRIMARY KEY (number)
);
CREATE TABLE ledger_secret (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "ledger_secret" VALUES('source','f22ec1196781d5f0cd0cad1428f707487326a1649f0aa87c80de5dadd66f6392');
CREATE TABLE ledger_source (
	release_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	version TEXT NOT NULL, 
	fingerprint TEXT NOT NULL, 
	noted_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
INSERT INTO "ledger_source" VALUES('invisible_ink-17c313788e76135e','letters','v1','75807b627f6d60f76bf46d6975894001af92507f','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_prediction-b43a1015381e43ac','letters','v1','75807b627f6d60f76bf46d6975894001af92507f','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('private_evolution-53ee7e130041bae8','letters','v1','75807b627f6d60f76bf46d6975894001af92507f','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('keyphrase_seeding-47290a7cc179b512','letters','v1','75807b627f6d60f76bf46d6975894001af92507f','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('dp_lora-f3ccb138f04fa5b9','letters','v1','75807b627f6d60f76bf46d6975894001af92507f','2026-11-20T12:00:00.000000Z');
INSERT INTO "ledger_source" VALUES('invisible_ink-9989ee62c41c3558','letters','v1','75807b627f6d60f76bf46d6975894001af92507f','2026-11-20T12:00:00.000000Z');
CREATE TABLE ledger_vault (
	release_id TEXT NOT NULL, 
	key_id TEXT NOT NULL, 
	wrapped_key BLOB NOT NULL, 
	nonce TEXT NOT NULL, 
	shards INTEGER NOT NULL, 
	made_at TEXT NOT NULL, 
	PRIMARY KEY (release_id)
);
CREATE INDEX ix_ledger_history_release_id ON ledger_history (release_id);
CREATE INDEX ix_ledger_source_fingerprint ON ledger_source (fingerprint);
CREATE INDEX ix_ledger_entry_account ON ledger_entry (account);
COMMIT;
